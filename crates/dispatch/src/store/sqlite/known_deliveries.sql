-- ?2 is a JSON array of ids.
SELECT id FROM deliveries WHERE tenant_id = ?1 AND id IN (SELECT value FROM json_each(?2))
