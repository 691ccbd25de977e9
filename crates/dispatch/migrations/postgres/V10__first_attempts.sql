-- Nearly every delivery ends with its first attempt. What that said lies in the delivery's own row; its id is the delivery's own
-- with another prefix.
ALTER TABLE deliveries
  ADD COLUMN first_at      timestamptz,      -- when it began; NULL: there was none, or it has a row in attempts
  ADD COLUMN first_ms      bigint,
  ADD COLUMN first_status  integer,
  ADD COLUMN first_headers text,
  ADD COLUMN first_body    bytea,
  ADD COLUMN first_class   text,
  ADD COLUMN first_error   text;

-- Deliveries are asked for by their ids. "|| ''" keeps the planner from the index of the tenant, all of which it would walk in a
-- partition that it knows nothing of.
CREATE VIEW all_attempts AS
SELECT id, tenant_id, delivery_id, number, started_at, duration_ms, response_status, response_headers, response_body, error_class, error
FROM attempts
UNION ALL
SELECT 'att' || substr(id, 4), tenant_id || '', id, 1, first_at, first_ms, first_status, first_headers, first_body, first_class, first_error
FROM deliveries
WHERE first_at IS NOT NULL;
