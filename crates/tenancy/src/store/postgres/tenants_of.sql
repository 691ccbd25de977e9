SELECT id FROM tenants WHERE deleted_at IS NULL AND id IN (SELECT jsonb_array_elements_text($1::text::jsonb))
