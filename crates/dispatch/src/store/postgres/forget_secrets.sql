-- Those that were replaced and have ended.
DELETE FROM subscription_secrets WHERE expires_at < now()
