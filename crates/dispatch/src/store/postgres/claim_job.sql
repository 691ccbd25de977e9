-- The one that has waited longest; of a tenant's jobs one at a time, in their order. A tenant waits since its last one ended, so that
-- whoever made many is not ahead of all who came later.
UPDATE jobs SET state = 'running', lease_owner = $1, fence = fence + 1, due_at = now() + $2::bigint * interval '1 millisecond', started_at = coalesce(started_at, now())
WHERE id = (
  SELECT j.id FROM jobs j
  WHERE j.due_at <= now()
    AND NOT EXISTS (SELECT 1 FROM jobs earlier WHERE earlier.tenant_id = j.tenant_id AND earlier.id < j.id AND earlier.due_at IS NOT NULL)
  ORDER BY greatest(j.due_at, (SELECT max(last.finished_at) FROM jobs last WHERE last.tenant_id = j.tenant_id))
  LIMIT 1
  FOR UPDATE SKIP LOCKED)
RETURNING id, tenant_id, kind, state, selection, progress, error, fence, created_at, started_at, finished_at
