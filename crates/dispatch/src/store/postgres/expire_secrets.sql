-- Old secrets and keys go on signing for the overlap, so that receivers can change over.
UPDATE subscription_secrets SET expires_at = now() + $3::bigint * interval '1 millisecond'
WHERE tenant_id = $1 AND subscription_id = $2 AND (id LIKE 'sec%' OR id LIKE 'sgk%') AND expires_at IS NULL
