-- The last first; behind the attempt $3, if one is named.
SELECT id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error
FROM all_attempts
WHERE tenant_id = $1 AND delivery_id = $2
  AND ($3::text IS NULL OR number < (SELECT number FROM all_attempts WHERE delivery_id = $2 AND id = $3))
ORDER BY number DESC
LIMIT $4
