-- A known id inserts nothing; find_event.sql then tells a repeat from a conflict.
INSERT INTO events (uid, tenant_id, id, type, source, ordering_key, deliver_at, data, hash, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(?10, CAST(unixepoch('subsec') * 1000 AS INTEGER)))
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING created_at
