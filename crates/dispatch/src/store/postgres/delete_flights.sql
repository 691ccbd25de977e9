-- $1 is a JSON array of those whose deliveries all have rows. One that somebody is landing needs no end from us.
DELETE FROM flights WHERE id IN (
  SELECT id FROM flights WHERE id = ANY (ARRAY(SELECT json_array_elements_text($1::text::json))) FOR UPDATE SKIP LOCKED)
