-- All of a tenant's.
UPDATE gates SET policy = NULL, version = (SELECT version FROM gate_version) WHERE tenant_id = ?1 AND policy IS NOT NULL
