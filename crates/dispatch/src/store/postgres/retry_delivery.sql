-- By hand: one more attempt now, whatever became of it; a running one is left alone.
UPDATE deliveries SET status = 'pending', due_at = now(), is_manual = TRUE, fence = fence + 1, updated_at = now()
WHERE tenant_id = $1 AND id = $2 AND status <> 'processing'
RETURNING id
