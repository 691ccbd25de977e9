SELECT count(*) AS live FROM api_keys
WHERE tenant_id = ?1 AND revoked_at IS NULL
  AND coalesce(expires_at > CAST(unixepoch('subsec') * 1000 AS INTEGER), TRUE)
