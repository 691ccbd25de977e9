-- All secrets of subscriptions that are there, a hundred behind the one of tenant ?1, subscription ?2 and id ?3.
SELECT secrets.tenant_id, secrets.subscription_id, secrets.id, secrets.sealed
FROM subscription_secrets secrets
JOIN subscriptions s ON s.tenant_id = secrets.tenant_id AND s.id = secrets.subscription_id AND s.deleted_at IS NULL
WHERE (secrets.tenant_id, secrets.subscription_id, secrets.id) > (?1, ?2, ?3)
ORDER BY secrets.tenant_id, secrets.subscription_id, secrets.id
LIMIT 100
