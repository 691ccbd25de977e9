-- Of the next ?1: what stands behind another is put off, so that a long line is not looked at again by every claim. Who ends a
-- head makes the next one due.
UPDATE deliveries SET due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + 60000
WHERE id IN (
  SELECT d.id FROM (
    SELECT id, tenant_id, subscription_id, ordering_key FROM deliveries
    WHERE due_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) ORDER BY due_at LIMIT ?1) d
  WHERE d.ordering_key IS NOT NULL AND EXISTS (
    SELECT 1 FROM deliveries earlier
    WHERE earlier.tenant_id = d.tenant_id AND earlier.subscription_id = d.subscription_id AND earlier.ordering_key = d.ordering_key
      AND earlier.id < d.id AND earlier.due_at IS NOT NULL))
