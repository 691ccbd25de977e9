-- $2 is a JSON array of ids.
SELECT id FROM deliveries WHERE tenant_id = $1 AND id = ANY (ARRAY(SELECT json_array_elements_text($2::text::json)))
