-- The first that is said of a delivery makes its row, with the attempt that was made in it; if somebody looked for it, it has one, and
-- then the fence decides.
INSERT INTO deliveries AS d (id, tenant_id, event_uid, subscription_id, line, status, attempts, deferrals, fence, due_at, last_error, created_at, updated_at,
  first_at, first_ms, first_status, first_headers, first_body, first_class, first_error)
SELECT id, tenant_id, event_uid, subscription_id, NULL::bigint, status, attempts, 1 - attempts, fence,
  now() + due_in_ms * interval '1 millisecond', CASE WHEN status <> 'delivered' THEN last_error END,
  now() - age_ms * interval '1 millisecond', now(),
  now() - duration_ms * interval '1 millisecond', duration_ms, response_status, response_headers, response_body, error_class, error
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
  $7::text[], $8::bigint[], $9::integer[], $10::text[], $11::bytea[], $12::text[], $13::text[],
  $14::text[], $15::text[], $16::text[], $17::bigint[])
  AS input (id, fence, status, attempts, due_in_ms, last_error,
    attempt_id, duration_ms, response_status, response_headers, response_body, error_class, error,
    tenant_id, event_uid, subscription_id, age_ms)
ON CONFLICT (id) DO UPDATE
SET status = excluded.status, attempts = d.attempts + excluded.attempts, deferrals = d.deferrals + excluded.deferrals,
  due_at = excluded.due_at, last_error = excluded.last_error, is_manual = d.is_manual AND excluded.attempts = 0,
  lease_owner = NULL, updated_at = excluded.updated_at,
  first_at = excluded.first_at, first_ms = excluded.first_ms, first_status = excluded.first_status, first_headers = excluded.first_headers,
  first_body = excluded.first_body, first_class = excluded.first_class, first_error = excluded.first_error
WHERE d.fence = excluded.fence AND d.status = 'processing'
RETURNING d.id, d.fence
