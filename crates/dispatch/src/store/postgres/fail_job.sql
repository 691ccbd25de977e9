UPDATE jobs SET state = 'failed', error = $3, due_at = NULL, lease_owner = NULL, finished_at = now()
WHERE id = $1 AND fence = $2 AND due_at IS NOT NULL
