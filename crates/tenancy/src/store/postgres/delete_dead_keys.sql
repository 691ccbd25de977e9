-- Revoked or expired for longer than retention: so many at a time.
DELETE FROM api_keys WHERE (tenant_id, id) IN (
  SELECT tenant_id, id FROM api_keys
  WHERE least(revoked_at, expires_at) < now() - $1::bigint * interval '1 millisecond'
  LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id
