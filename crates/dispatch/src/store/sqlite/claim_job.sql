-- The one that has waited longest; of a tenant's jobs one at a time, in their order. A tenant waits since its last one ended, so that
-- whoever made many is not ahead of all who came later.
UPDATE jobs SET state = 'running', lease_owner = ?1, fence = fence + 1, due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?2, started_at = coalesce(started_at, CAST(unixepoch('subsec') * 1000 AS INTEGER))
WHERE id = (
  SELECT j.id FROM jobs j
  WHERE j.due_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    AND NOT EXISTS (SELECT 1 FROM jobs earlier WHERE earlier.tenant_id = j.tenant_id AND earlier.id < j.id AND earlier.due_at IS NOT NULL)
  ORDER BY max(j.due_at, coalesce((SELECT max(last.finished_at) FROM jobs last WHERE last.tenant_id = j.tenant_id), 0))
  LIMIT 1)
RETURNING id, tenant_id, kind, state, selection, progress, error, fence, created_at, started_at, finished_at
