-- Takes what is due, an expired lease included; in an ordered line only its head. What is only put off again waits as long as it has.
UPDATE deliveries
SET status = 'processing', lease_owner = ?1, fence = fence + 1,
  waits_since = iif(status = 'throttled' OR status = 'processing', coalesce(waits_since, due_at), due_at),
  due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?2, updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE id IN (
  SELECT d.id FROM (
    SELECT id, tenant_id, subscription_id, ordering_key FROM deliveries
    WHERE due_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) ORDER BY due_at LIMIT ?3) d
  WHERE d.ordering_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM deliveries earlier
    WHERE earlier.tenant_id = d.tenant_id AND earlier.subscription_id = d.subscription_id AND earlier.ordering_key = d.ordering_key
      AND earlier.id < d.id AND earlier.due_at IS NOT NULL))
RETURNING id, tenant_id, event_uid, subscription_id, ordering_key, attempts - attempts_before, is_manual, fence
