-- Calls take longer than their lease: whoever still has the latest fence keeps the delivery.
UPDATE deliveries d SET due_at = now() + $3::bigint * interval '1 millisecond'
FROM unnest($1::text[], $2::bigint[]) AS input (id, fence)
WHERE d.id = input.id AND d.fence = input.fence AND d.status = 'processing'
