-- $2 is a JSON array of deliveries; $3 a class of errors, or 'success'.
SELECT id, delivery_id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error
FROM all_attempts
WHERE tenant_id = $1 AND delivery_id = ANY (ARRAY(SELECT json_array_elements_text($2::text::json))) AND ($3::text IS NULL OR coalesce(error_class, 'success') = $3)
ORDER BY delivery_id DESC, number DESC
