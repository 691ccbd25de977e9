-- Nearly every delivery ends with its first attempt. What that said lies in the delivery's own row, where it is short (long rows
-- would make the tree deep); its id is the delivery's own with another prefix.
ALTER TABLE deliveries ADD COLUMN first_at INTEGER;  -- when it began; NULL: there was none, or it has a row in attempts
ALTER TABLE deliveries ADD COLUMN first_ms INTEGER;
ALTER TABLE deliveries ADD COLUMN first_status INTEGER;
ALTER TABLE deliveries ADD COLUMN first_headers TEXT;
ALTER TABLE deliveries ADD COLUMN first_body BLOB;
ALTER TABLE deliveries ADD COLUMN first_class TEXT;
ALTER TABLE deliveries ADD COLUMN first_error TEXT;

CREATE VIEW all_attempts AS
SELECT id, tenant_id, delivery_id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error
FROM attempts
UNION ALL
SELECT 'att' || substr(id, 4), tenant_id, id, 1, first_at, first_ms, first_status, first_headers, first_body, first_class, first_error
FROM deliveries
WHERE first_at IS NOT NULL;
