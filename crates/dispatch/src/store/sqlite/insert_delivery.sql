-- With an owner it is born leased to it until ?7; without one it waits until then to be claimed.
INSERT OR FAIL INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, status, fence, lease_owner, due_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, iif(?6 IS NULL, 'pending', 'processing'), iif(?6 IS NULL, 0, 1), ?6, ?7, ?8, ?8)
