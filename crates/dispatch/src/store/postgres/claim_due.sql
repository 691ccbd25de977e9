-- Takes what is due, an expired lease included; in an ordered line only its head. Rows that another claimer holds are
-- stepped over, so claimers never wait for each other. What stands behind another is put off, so that a long line is not
-- looked at again by every claim; who ends a head makes the next one due. Of each line that was put off the first comes
-- along with the number of all, see heads_again.sql. What is only put off again waits as long as it has.
WITH looked AS (
  SELECT d.id, d.tenant_id, d.subscription_id, d.ordering_key, d.line FROM deliveries d
  WHERE d.due_at <= now()
  ORDER BY d.due_at
  LIMIT $3
  FOR UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
  SELECT l.id, l.ordering_key IS NOT NULL AND EXISTS (
    SELECT 1 FROM deliveries earlier
    WHERE earlier.tenant_id = l.tenant_id AND earlier.subscription_id = l.subscription_id AND earlier.ordering_key = l.ordering_key
      AND earlier.line < l.line AND earlier.due_at IS NOT NULL) AS is_behind
  FROM looked l
), put_off AS (
  UPDATE deliveries d SET due_at = now() + interval '1 minute'
  FROM judged WHERE d.id = judged.id AND judged.is_behind
  RETURNING d.id, d.tenant_id, d.subscription_id, d.ordering_key, d.line
), claimed AS (
  UPDATE deliveries d
  SET status = 'processing', lease_owner = $1, fence = fence + 1,
    waits_since = CASE WHEN status IN ('throttled', 'processing') THEN coalesce(waits_since, due_at) ELSE due_at END,
    due_at = now() + $2::bigint * interval '1 millisecond', updated_at = now()
  FROM judged
  WHERE d.id = judged.id AND NOT judged.is_behind
  RETURNING d.id, d.tenant_id, d.event_uid, d.subscription_id, d.ordering_key, d.attempts - d.attempts_before AS attempts, d.is_manual, d.fence
)
SELECT c.id, c.tenant_id, c.subscription_id, c.attempts, c.is_manual, c.fence,
  e.id AS event_id, e.type, e.created_at, e.data, e.trace, coalesce(e.source = 'tidegate', FALSE) AS is_operational,
  c.ordering_key IS NOT NULL AS is_ordered, 0 AS behind
FROM claimed c JOIN events e ON e.uid = c.event_uid
UNION ALL
SELECT (array_agg(p.id ORDER BY p.line))[1], p.tenant_id, p.subscription_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, count(*)
FROM put_off p GROUP BY p.tenant_id, p.subscription_id, p.ordering_key
