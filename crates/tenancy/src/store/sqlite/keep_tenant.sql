-- Writers come one after the other: as long as the transaction lasts, nobody deletes it.
SELECT id FROM tenants WHERE id = ?1 AND deleted_at IS NULL
