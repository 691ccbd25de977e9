-- A subscription is on again: what was parked for it may go, a thousand behind ?3 at a time. The conditions are the index's own.
UPDATE deliveries SET due_at = min(due_at, CAST(unixepoch('subsec') * 1000 AS INTEGER)), last_error = 'put off while the subscription was switched off'
WHERE id IN (
  SELECT id FROM deliveries INDEXED BY deliveries_parked
  WHERE status = 'throttled' AND last_error = 'the subscription is switched off'
    AND tenant_id = ?1 AND subscription_id = ?2 AND id > ?3
  ORDER BY id
  LIMIT 1000)
RETURNING id
