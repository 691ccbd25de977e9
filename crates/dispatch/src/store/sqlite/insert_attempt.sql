INSERT INTO attempts (id, tenant_id, delivery_id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error)
VALUES (?1, ?2, ?3, ?4, CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?5, ?5, ?6, ?7, ?8, ?9, ?10)
