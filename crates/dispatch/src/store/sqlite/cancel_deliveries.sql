-- A subscription is gone: what waits for it will not be sent.
UPDATE deliveries SET status = 'cancelled', due_at = NULL, fence = fence + 1, last_error = 'the subscription was deleted', updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND subscription_id = ?2 AND due_at IS NOT NULL
