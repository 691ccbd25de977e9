-- All of a tenant's; the rows stay for the replicas, as if they had been used.
UPDATE gates SET policy = NULL, version = (SELECT version FROM gate_version), used_at = now()
WHERE tenant_id = $1 AND policy IS NOT NULL
