-- Where a delivery stands in its ordered line, by the database's count: ids have the time of the replica that made them, and
-- replicas' clocks are apart. The default is for replicas of the version before.
CREATE SEQUENCE delivery_lines;
ALTER TABLE deliveries ADD COLUMN line bigint;
ALTER TABLE deliveries ALTER COLUMN line SET DEFAULT nextval('delivery_lines');
UPDATE deliveries d SET line = numbered.line
FROM (
  SELECT waiting.id, nextval('delivery_lines') AS line
  FROM (SELECT id FROM deliveries WHERE due_at IS NOT NULL AND ordering_key IS NOT NULL ORDER BY id) waiting
) numbered
WHERE d.id = numbered.id;

DROP INDEX deliveries_ordered;
CREATE INDEX deliveries_ordered ON deliveries (subscription_id, ordering_key, tenant_id, line)
  WHERE due_at IS NOT NULL AND ordering_key IS NOT NULL;
