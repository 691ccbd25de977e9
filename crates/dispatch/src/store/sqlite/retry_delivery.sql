-- By hand: one more attempt now, whatever became of it; a running one is left alone. One that has not ended goes on with
-- its schedule afterwards; for one that has, this attempt is the only one.
UPDATE deliveries SET status = 'pending', due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), is_manual = is_manual OR due_at IS NULL, fence = fence + 1, updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND id = ?2 AND status <> 'processing'
RETURNING id
