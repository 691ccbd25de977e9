-- What a replica that has seen version $1 does not know yet, removals included.
SELECT tenant_id, target, policy, version FROM gates WHERE version > $1 ORDER BY version LIMIT 10000
