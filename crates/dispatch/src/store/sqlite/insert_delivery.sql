-- It waits until ?6 to be claimed.
INSERT OR FAIL INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, status, fence, due_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, 'pending', 0, ?6, ?7, ?7)
