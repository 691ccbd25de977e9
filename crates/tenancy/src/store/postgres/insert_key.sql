-- A time to live of NULL never ends.
INSERT INTO api_keys (tenant_id, id, name, hash, hint, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, now() + $7::bigint * interval '1 millisecond')
RETURNING id, tenant_id, name, hint, scopes, created_at, expires_at, revoked_at, last_used_at, replaced_by
