-- The last of the next thousand behind $3.
SELECT max(id) AS last FROM (
  SELECT id FROM deliveries
  WHERE tenant_id = $1 AND subscription_id = $2 AND (tenant_id, subscription_id, id) > ($1, $2, $3)
  ORDER BY id
  LIMIT 1000) next
