-- Found by its hash, with what the database's clock says of it.
SELECT id, tenant_id, scopes, revoked_at IS NOT NULL AS is_revoked,
  coalesce(expires_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER), FALSE) AS is_expired,
  coalesce(last_used_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - 60000, TRUE) AS is_use_unrecorded
FROM api_keys
WHERE hash = ?1
