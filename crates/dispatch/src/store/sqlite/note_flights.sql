-- ?1 is a JSON array of flights: their deliveries have rows now, which are yet to be filed.
INSERT INTO unfiled (events, deliveries)
SELECT '[]', (SELECT json_group_array(d.value ->> 0) FROM json_each(f.deliveries) d) FROM flights f
WHERE f.id IN (SELECT value FROM json_each(?1))
