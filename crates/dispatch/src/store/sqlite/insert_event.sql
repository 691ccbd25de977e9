-- A known id inserts nothing; find_event.sql then tells a repeat from a conflict. Whatever else fails undoes the whole batch,
-- so SQLite need not keep what this statement alone would undo.
INSERT OR FAIL INTO events (uid, tenant_id, id, type, source, ordering_key, deliver_at, data, hash, created_at, trace)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (tenant_id, id) DO NOTHING
