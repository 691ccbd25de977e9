-- By hand: one more attempt now, whatever became of it; a running one is left alone. One that has not ended goes on with
-- its schedule afterwards; for one that has, this attempt is the only one.
UPDATE deliveries SET status = 'pending', due_at = now(), is_manual = is_manual OR due_at IS NULL, fence = fence + 1, updated_at = now()
WHERE tenant_id = $1 AND id = $2 AND status <> 'processing'
RETURNING id
