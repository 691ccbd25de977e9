-- A subscription is on again: what was parked for it may go, a thousand behind $3 at a time. The conditions are the index's own.
-- What another worker is resuming is stepped over.
UPDATE deliveries SET due_at = least(due_at, now()), last_error = 'put off while the subscription was switched off'
WHERE id IN (
  SELECT id FROM deliveries
  WHERE status = 'throttled' AND last_error = 'the subscription is switched off'
    AND tenant_id = $1 AND subscription_id = $2 AND (subscription_id, tenant_id, id) > ($2, $1, $3)
  ORDER BY id
  LIMIT 1000
  FOR UPDATE SKIP LOCKED)
RETURNING id
