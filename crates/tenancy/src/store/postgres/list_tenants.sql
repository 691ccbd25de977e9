-- Newest first; the cursor is the last id of the page before.
SELECT id, name, created_at FROM tenants
WHERE deleted_at IS NULL AND ($1::text IS NULL OR (created_at, id) < (SELECT created_at, id FROM tenants WHERE id = $1))
ORDER BY created_at DESC, id DESC
LIMIT $2
