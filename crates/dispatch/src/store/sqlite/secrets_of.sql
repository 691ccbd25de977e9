SELECT id, sealed, expires_at FROM subscription_secrets
WHERE tenant_id = ?1 AND subscription_id = ?2 AND coalesce(expires_at > CAST(unixepoch('subsec') * 1000 AS INTEGER), TRUE)
ORDER BY id DESC
