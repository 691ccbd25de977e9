SELECT id, sealed, expires_at FROM subscription_secrets
WHERE tenant_id = $1 AND subscription_id = $2 AND coalesce(expires_at > now(), TRUE)
ORDER BY id DESC
