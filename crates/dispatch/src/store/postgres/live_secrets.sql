-- Signing secrets and keys in force, unless there are more than $3.
SELECT count(*) AS live FROM subscription_secrets
WHERE tenant_id = $1 AND subscription_id = $2 AND (id LIKE 'sec%' OR id LIKE 'sgk%')
  AND coalesce(expires_at > now(), TRUE)
HAVING count(*) <= $3
