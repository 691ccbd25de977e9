-- With an owner it is born leased to it; without one it waits until ?7 (or now) to be claimed.
INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, status, fence, lease_owner, due_at)
VALUES (?1, ?2, ?3, ?4, ?5, iif(?6 IS NULL, 'pending', 'processing'), iif(?6 IS NULL, 0, 1), ?6,
  iif(?6 IS NULL, coalesce(?7, CAST(unixepoch('subsec') * 1000 AS INTEGER)), CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?8))
