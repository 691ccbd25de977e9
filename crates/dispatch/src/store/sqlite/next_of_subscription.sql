-- The last of the next thousand behind ?3.
SELECT max(id) AS last FROM (
  SELECT id FROM filed_deliveries
  WHERE tenant_id = ?1 AND subscription_id = ?2 AND id > ?3
  ORDER BY id
  LIMIT 1000)
