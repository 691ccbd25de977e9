SELECT id, tenant_id, kind, state, selection, progress, error, fence, created_at, started_at, finished_at FROM jobs WHERE id = ?2 AND tenant_id = ?1
