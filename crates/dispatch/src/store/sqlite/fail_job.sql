UPDATE jobs SET state = 'failed', error = ?3, due_at = NULL, lease_owner = NULL, finished_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE id = ?1 AND fence = ?2 AND due_at IS NOT NULL
