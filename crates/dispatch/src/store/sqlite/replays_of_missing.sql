-- Replays that made deliveries of events that may be old, and were still at it at ?2.
SELECT selection, progress FROM jobs
WHERE tenant_id = ?1 AND kind = 'replay' AND (finished_at IS NULL OR finished_at >= ?2)
  AND selection LIKE '%"missing":true%' AND selection LIKE '%"dry_run":false%'
