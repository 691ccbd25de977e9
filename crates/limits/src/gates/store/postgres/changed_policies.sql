-- What a replica that has seen $2 of version $1 does not know yet, removals included.
SELECT tenant_id, target, policy, version FROM gates
WHERE (version, target) > ($1, $2) AND version > 0 ORDER BY version, target LIMIT 1000
