SELECT subscription_id, id, sealed, expires_at FROM subscription_secrets
WHERE tenant_id = ?1 AND subscription_id IN (SELECT value FROM json_each(?2))
  AND coalesce(expires_at > CAST(unixepoch('subsec') * 1000 AS INTEGER), TRUE)
ORDER BY id DESC
