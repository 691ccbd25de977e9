-- A subscription is gone: what waits for it will not be sent, here from behind $3 up to $4. What a worker has in hand, or someone is
-- writing just now, is left to the worker: a call that is under way is recorded, and what is not begun is ended.
UPDATE deliveries SET status = 'cancelled', due_at = NULL, fence = fence + 1, last_error = 'the subscription was deleted', updated_at = now()
WHERE id IN (
  SELECT id FROM deliveries
  WHERE tenant_id = $1 AND subscription_id = $2 AND (tenant_id, subscription_id, id) > ($1, $2, $3)
    AND (tenant_id, subscription_id, id) <= ($1, $2, $4) AND due_at IS NOT NULL AND status <> 'processing'
  FOR UPDATE SKIP LOCKED)
RETURNING id
