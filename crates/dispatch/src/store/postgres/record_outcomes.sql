-- Only the holder of the latest fence writes; a late one changes nothing and leaves no attempt. What an attempt says goes
-- through the update, so that nothing is joined twice.
WITH input AS (
  SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
    $7::bigint[], $8::integer[], $9::text[], $10::bytea[], $11::text[], $12::text[], $13::text[])
    AS input (id, fence, status, attempts, due_in_ms, last_error,
      duration_ms, response_status, response_headers, response_body, error_class, error, attempt_id)
), recorded AS (
  UPDATE deliveries d
  SET status = input.status, attempts = d.attempts + input.attempts, deferrals = d.deferrals + 1 - input.attempts,
    due_at = now() + input.due_in_ms * interval '1 millisecond',
    last_error = CASE WHEN input.status <> 'delivered' THEN coalesce(input.last_error, nullif(d.last_error, 'the subscription is switched off')) END,
    is_manual = d.is_manual AND input.attempts = 0, lease_owner = NULL, updated_at = now()
  FROM input
  WHERE d.id = input.id AND d.fence = input.fence AND d.status = 'processing'
  RETURNING d.id, d.fence, d.tenant_id, d.attempts, input.attempt_id, input.duration_ms, input.response_status,
    input.response_headers, input.response_body, input.error_class, input.error
), attempted AS (
  INSERT INTO attempts (id, tenant_id, delivery_id, number, started_at, duration_ms,
    response_status, response_headers, response_body, error_class, error)
  SELECT attempt_id, tenant_id, id, attempts, now() - duration_ms * interval '1 millisecond', duration_ms,
    response_status, response_headers, response_body, error_class, error
  FROM recorded
  WHERE attempt_id IS NOT NULL
)
SELECT id, fence FROM recorded
