SELECT id, tenant_id, kind, state, selection, progress, error, fence, created_at, started_at, finished_at FROM jobs
WHERE tenant_id = ?1 AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR id < ?3)
ORDER BY id DESC
LIMIT ?4
