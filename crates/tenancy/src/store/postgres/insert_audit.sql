INSERT INTO audit (id, tenant_id, actor, action, target) VALUES ($1, $2, $3, $4, $5)
