UPDATE deliveries SET status = 'cancelled', due_at = NULL, fence = fence + 1, lease_owner = NULL, last_error = 'cancelled by hand', updated_at = now()
WHERE tenant_id = $1 AND id = $2 AND due_at IS NOT NULL AND status <> 'processing'
RETURNING id
