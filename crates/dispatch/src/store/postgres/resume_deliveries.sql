-- A subscription is on again: what was parked for it may go, a thousand at a time. The list is the index's own.
UPDATE deliveries SET due_at = now()
WHERE id IN (
  SELECT id FROM deliveries
  WHERE tenant_id = $1 AND status = 'throttled' AND status IN ('retrying', 'throttled', 'failed', 'cancelled')
    AND subscription_id = $2 AND last_error = $3 AND due_at > now()
  LIMIT 1000)
RETURNING id
