DELETE FROM jobs WHERE due_at IS NULL AND finished_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
