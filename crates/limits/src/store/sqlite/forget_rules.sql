-- Deleted so many milliseconds (?1) ago: every replica knows by now.
DELETE FROM limit_rules WHERE deleted_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
