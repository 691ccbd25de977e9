-- Of the delivery that was just recorded: its count of attempts is this one's number.
INSERT OR FAIL INTO attempts (id, tenant_id, delivery_id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error)
SELECT ?1, ?9, id, attempts, ?10 - ?3, ?3, ?4, ?5, ?6, ?7, ?8 FROM deliveries WHERE id = ?2
