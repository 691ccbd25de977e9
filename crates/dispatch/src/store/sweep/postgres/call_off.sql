UPDATE deliveries d
SET status = 'cancelled', due_at = NULL, fence = d.fence + 1, lease_owner = NULL, last_error = 'cancelled by hand', updated_at = now()
FROM unnest($1::text[], $2::bigint[]) AS input (id, fence)
WHERE d.id = input.id AND d.fence = input.fence AND d.status <> 'processing' AND d.due_at IS NOT NULL
