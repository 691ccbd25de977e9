-- Unused for so many milliseconds (?1), and without a policy that somebody wrote.
DELETE FROM gates WHERE policy IS NULL AND used_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
