-- One look into the index for each subscription, whatever the statistics say: a list of them would be sought among all
-- secrets of the tenant as long as the table is not analysed.
SELECT secrets.subscription_id, secrets.id, secrets.sealed, secrets.expires_at
FROM json_array_elements_text($2::text::json) AS asked (id)
CROSS JOIN LATERAL (
  SELECT s.subscription_id, s.id, s.sealed, s.expires_at FROM subscription_secrets s
  WHERE s.tenant_id = $1 AND s.subscription_id = asked.id AND coalesce(s.expires_at > now(), TRUE)
  OFFSET 0
) secrets
ORDER BY secrets.id DESC
