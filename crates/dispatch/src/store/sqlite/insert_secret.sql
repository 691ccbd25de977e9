INSERT INTO subscription_secrets (tenant_id, subscription_id, id, sealed) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant_id, subscription_id, id) DO UPDATE SET sealed = excluded.sealed
