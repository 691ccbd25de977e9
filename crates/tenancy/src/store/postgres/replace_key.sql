-- The old key lives on for the grace time, never longer than it would have; only a live, not yet replaced key can be replaced.
UPDATE api_keys
SET replaced_by = $3, expires_at = least(expires_at, now() + $4::bigint * interval '1 millisecond')
WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL AND replaced_by IS NULL
  AND coalesce(expires_at > now(), TRUE)
RETURNING name, scopes
