-- Deleted so many milliseconds ($1) ago: every replica knows by now.
DELETE FROM limit_rules WHERE deleted_at < now() - $1::bigint * interval '1 millisecond'
