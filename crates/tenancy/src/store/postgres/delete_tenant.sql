-- The row stays: its id is never given out again.
UPDATE tenants SET deleted_at = now() WHERE id = $1 AND deleted_at IS NULL
RETURNING id
