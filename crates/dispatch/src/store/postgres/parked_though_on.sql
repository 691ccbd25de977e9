-- Subscriptions that are on, and for which something is parked all the same. From one to the next along the index: of each the
-- first is looked at, however many there are.
WITH RECURSIVE parked AS (
  (SELECT subscription_id, tenant_id FROM deliveries
   WHERE status = 'throttled' AND last_error = 'the subscription is switched off'
   ORDER BY subscription_id, tenant_id
   LIMIT 1)
  UNION ALL
  SELECT next.subscription_id, next.tenant_id FROM parked CROSS JOIN LATERAL (
    SELECT d.subscription_id, d.tenant_id FROM deliveries d
    WHERE d.status = 'throttled' AND d.last_error = 'the subscription is switched off'
      AND (d.subscription_id, d.tenant_id) > (parked.subscription_id, parked.tenant_id)
    ORDER BY d.subscription_id, d.tenant_id
    LIMIT 1) next
)
SELECT s.tenant_id, s.id FROM parked JOIN subscriptions s ON s.tenant_id = parked.tenant_id AND s.id = parked.subscription_id
WHERE s.enabled
