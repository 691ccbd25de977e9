-- Locked until the transaction ends, so that nothing is made for a tenant while it is deleted.
SELECT id FROM tenants WHERE id = $1 AND deleted_at IS NULL FOR SHARE
