-- ?1 is a JSON array of flights whose deliveries all have rows.
DELETE FROM flights WHERE id IN (SELECT value FROM json_each(?1))
