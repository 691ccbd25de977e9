SELECT subscription_id, id, sealed FROM subscription_secrets
WHERE tenant_id = $1 AND subscription_id = ANY (ARRAY(SELECT json_array_elements_text($2::text::json)))
  AND coalesce(expires_at > now(), TRUE)
ORDER BY id DESC
