-- Subscriptions that are on, and for which something is parked all the same. Of each the first is looked at, however many there are.
SELECT s.tenant_id, s.id FROM subscriptions s
WHERE s.enabled AND EXISTS (
  SELECT 1 FROM deliveries d INDEXED BY deliveries_parked
  WHERE d.status = 'throttled' AND d.last_error = 'the subscription is switched off'
    AND d.subscription_id = s.id AND d.tenant_id = s.tenant_id)
