SELECT id FROM tenants WHERE id IN (SELECT jsonb_array_elements_text($1::text::jsonb))
