-- A line is one tenant's: two may call their subscriptions the same. The tenant is not the first column, so that replicas of
-- the version before still find their lines in it.
DROP INDEX deliveries_ordered;
CREATE INDEX deliveries_ordered ON deliveries (subscription_id, ordering_key, tenant_id, id)
  WHERE due_at IS NOT NULL AND ordering_key IS NOT NULL;

-- What waits for a subscription that is switched off. Nothing else enters it; its first columns are no other index's, so that
-- none is taken in its place.
CREATE INDEX deliveries_parked ON deliveries (subscription_id, tenant_id, id)
  WHERE status = 'throttled' AND last_error = 'the subscription is switched off';
