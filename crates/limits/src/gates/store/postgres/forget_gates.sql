-- Unused for so many milliseconds ($1), and without a policy that somebody wrote.
DELETE FROM gates WHERE policy IS NULL AND used_at < now() - $1::bigint * interval '1 millisecond'
