-- ?2 is a JSON array of deliveries; ?3 a class of errors, or 'success'.
SELECT id, delivery_id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error
FROM all_attempts
WHERE tenant_id = ?1 AND delivery_id IN (SELECT value FROM json_each(?2)) AND (?3 IS NULL OR coalesce(error_class, 'success') = ?3)
ORDER BY delivery_id DESC, number DESC
