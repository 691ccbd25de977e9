-- A row if nothing that is still needed is sealed with the master key of this id. Its eight bytes stand behind the version's one.
SELECT 1 AS one WHERE NOT EXISTS (
  SELECT 1 FROM subscription_secrets secrets
  JOIN subscriptions s ON s.tenant_id = secrets.tenant_id AND s.id = secrets.subscription_id AND s.deleted_at IS NULL
  WHERE lower(hex(substr(secrets.sealed, 2, 8))) = ?1)
