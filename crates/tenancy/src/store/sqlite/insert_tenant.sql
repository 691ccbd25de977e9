INSERT INTO tenants (id, name) VALUES (?1, ?2) RETURNING id, name, created_at
