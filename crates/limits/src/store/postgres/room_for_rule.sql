-- A row: this tenant's other rules leave room for one of $5 bytes; it may have $3 rules of $4 bytes together.
SELECT rules FROM (
  SELECT count(*) AS rules, coalesce(sum(octet_length(rule)), 0) AS bytes FROM limit_rules
  WHERE tenant_id = $1 AND id <> $2 AND deleted_at IS NULL
) AS others
WHERE rules < $3::bigint AND bytes + $5::bigint <= $4::bigint
