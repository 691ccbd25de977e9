-- The old key lives on for the grace time, never longer than it would have; only a live, not yet replaced key can be replaced.
UPDATE api_keys
SET replaced_by = ?3,
  expires_at = min(coalesce(expires_at, 9223372036854775807), CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?4)
WHERE tenant_id = ?1 AND id = ?2 AND revoked_at IS NULL AND replaced_by IS NULL
  AND coalesce(expires_at > CAST(unixepoch('subsec') * 1000 AS INTEGER), TRUE)
RETURNING name, scopes
