DELETE FROM jobs WHERE due_at IS NULL AND finished_at < now() - $1::bigint * interval '1 millisecond'
