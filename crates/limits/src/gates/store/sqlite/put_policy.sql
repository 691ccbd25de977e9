-- A tenant may have ?4 policies; no row: this would be one more.
INSERT INTO gates (tenant_id, target, policy, version)
SELECT ?1, ?2, ?3, version FROM gate_version
WHERE (SELECT count(*) FROM gates WHERE tenant_id = ?1 AND target <> ?2 AND policy IS NOT NULL) < ?4
ON CONFLICT (tenant_id, target) DO UPDATE SET policy = excluded.policy, version = excluded.version
RETURNING target
