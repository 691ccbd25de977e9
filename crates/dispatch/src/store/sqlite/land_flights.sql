-- ?1 is a JSON array of flights. What has a row already keeps it.
INSERT OR IGNORE INTO deliveries (id, tenant_id, event_uid, subscription_id, status, fence, lease_owner, due_at, created_at, updated_at)
SELECT d.value ->> 0, d.value ->> 1, d.value ->> 2, d.value ->> 3, iif(f.owner IS NULL, 'pending', 'processing'), f.owner IS NOT NULL,
  f.owner, coalesce(f.until, f.created_at), f.created_at, f.created_at
FROM flights f CROSS JOIN json_each(f.deliveries) d
WHERE f.id IN (SELECT value FROM json_each(?1))
