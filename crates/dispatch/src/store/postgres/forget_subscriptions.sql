-- Deleted so long ago that every replica knows, and nothing waits for them.
DELETE FROM subscriptions s WHERE s.deleted_at < now() - $1::bigint * interval '1 millisecond' AND NOT EXISTS (
  SELECT 1 FROM deliveries d WHERE d.tenant_id = s.tenant_id AND d.subscription_id = s.id AND d.due_at IS NOT NULL)
