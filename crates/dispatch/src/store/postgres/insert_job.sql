-- So many at a time and no more, so that nobody fills the table by mistake.
INSERT INTO jobs (id, tenant_id, kind, selection, progress, due_at)
SELECT $2, $1, $3, $4, $5, now()
WHERE (SELECT count(*) FROM jobs WHERE tenant_id = $1 AND due_at IS NOT NULL) < 100
RETURNING id, tenant_id, kind, state, selection, progress, error, fence, created_at, started_at, finished_at
