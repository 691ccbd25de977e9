-- Those that were replaced and have ended.
DELETE FROM subscription_secrets WHERE expires_at < CAST(unixepoch('subsec') * 1000 AS INTEGER)
