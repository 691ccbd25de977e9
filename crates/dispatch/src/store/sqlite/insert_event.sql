-- A known id inserts nothing; find_event.sql then tells a repeat from a conflict.
INSERT INTO events (uid, tenant_id, id, type, source, ordering_key, deliver_at, data, hash)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING created_at
