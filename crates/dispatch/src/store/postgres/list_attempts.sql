SELECT id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error
FROM attempts
WHERE tenant_id = $1 AND delivery_id = $2
ORDER BY number DESC
LIMIT $3
