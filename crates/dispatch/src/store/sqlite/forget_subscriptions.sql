-- Deleted so long ago that every replica knows, and nothing waits for them.
DELETE FROM subscriptions WHERE deleted_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1 AND NOT EXISTS (
  SELECT 1 FROM deliveries d WHERE d.tenant_id = subscriptions.tenant_id AND d.subscription_id = subscriptions.id AND d.due_at IS NOT NULL)
