-- A subscription is gone: what waits for it will not be sent, here from behind ?3 up to ?4. What a worker has in hand is left to it: a
-- call that is under way is recorded, and what is not begun is ended.
UPDATE deliveries SET status = 'cancelled', due_at = NULL, fence = fence + 1, last_error = 'the subscription was deleted', updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE due_at IS NOT NULL AND status <> 'processing' AND id IN (
  SELECT id FROM filed_deliveries
  WHERE tenant_id = ?1 AND subscription_id = ?2 AND id > ?3 AND id <= ?4)
RETURNING id
