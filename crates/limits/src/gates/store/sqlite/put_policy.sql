-- A policy of NULL takes it away.
INSERT INTO gates (tenant_id, target, policy, version) VALUES (?1, ?2, ?3, (SELECT version FROM gate_version))
ON CONFLICT (tenant_id, target) DO UPDATE SET policy = excluded.policy, version = excluded.version
RETURNING target
