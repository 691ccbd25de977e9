-- Revoked or expired for longer than retention: so many at a time.
DELETE FROM api_keys WHERE (tenant_id, id) IN (
  SELECT tenant_id, id FROM api_keys
  WHERE min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at))
    < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
  LIMIT ?2)
RETURNING id
