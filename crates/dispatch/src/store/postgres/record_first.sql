-- The first that is said of a delivery makes its row, with the attempt that was made in it; if somebody looked for it, it has one, and
-- then the fence decides.
INSERT INTO deliveries AS d (id, tenant_id, event_uid, subscription_id, line, status, attempts, deferrals, fence, due_at, last_error, created_at, updated_at,
  first_at, first_ms, first_status, first_headers, first_body, first_class, first_error)
SELECT id, tenant_id, event_uid, subscription_id, NULL::bigint, status, attempts, 1 - attempts, fence,
  now() + due_in_ms * interval '1 millisecond', CASE WHEN status <> 'delivered' THEN last_error END,
  now() - age_ms * interval '1 millisecond', now(),
  now() - duration_ms * interval '1 millisecond', duration_ms, response_status, response_headers, response_body, error_class, error
FROM (
  SELECT unnest($1::text[]) AS id, unnest($2::bigint[]) AS fence, unnest($3::text[]) AS status, unnest($4::integer[]) AS attempts,
    unnest($5::bigint[]) AS due_in_ms, unnest($6::text[]) AS last_error, unnest($7::bigint[]) AS duration_ms,
    unnest($8::integer[]) AS response_status, unnest($9::text[]) AS response_headers, unnest($10::bytea[]) AS response_body,
    unnest($11::text[]) AS error_class, unnest($12::text[]) AS error, unnest($13::text[]) AS tenant_id, unnest($14::text[]) AS event_uid,
    unnest($15::text[]) AS subscription_id, unnest($16::bigint[]) AS age_ms
) AS input
ON CONFLICT (id) DO UPDATE
SET status = excluded.status, attempts = d.attempts + excluded.attempts, deferrals = d.deferrals + excluded.deferrals,
  due_at = excluded.due_at, last_error = excluded.last_error, is_manual = d.is_manual AND excluded.attempts = 0,
  lease_owner = NULL, updated_at = excluded.updated_at,
  first_at = excluded.first_at, first_ms = excluded.first_ms, first_status = excluded.first_status, first_headers = excluded.first_headers,
  first_body = excluded.first_body, first_class = excluded.first_class, first_error = excluded.first_error
WHERE d.fence = excluded.fence AND d.status = 'processing'
RETURNING d.id, d.fence
