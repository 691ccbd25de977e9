-- Found by its hash, with what the database's clock says of it.
SELECT id, tenant_id, scopes, revoked_at IS NOT NULL AS is_revoked,
  coalesce(expires_at <= now(), FALSE) AS is_expired,
  coalesce(last_used_at < now() - interval '1 minute', TRUE) AS is_use_unrecorded
FROM api_keys
WHERE hash = $1
