-- The row stays: its id is never given out again.
UPDATE tenants SET deleted_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE id = ?1 AND deleted_at IS NULL
RETURNING id
