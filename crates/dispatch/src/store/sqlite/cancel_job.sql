-- Whoever works on it loses its fence, so the batch that is not committed yet never is.
UPDATE jobs SET state = 'cancelled', due_at = NULL, lease_owner = NULL, fence = fence + 1, finished_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE id = ?2 AND tenant_id = ?1 AND due_at IS NOT NULL
RETURNING id, tenant_id, kind, state, selection, progress, error, fence, created_at, started_at, finished_at
