-- Takes what is due, an expired lease included; in an ordered line only its head. Rows that another claimer holds are
-- stepped over, so claimers never wait for each other.
WITH due AS (
  SELECT d.id FROM deliveries d
  WHERE d.due_at <= now()
    AND (d.ordering_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM deliveries earlier
      WHERE earlier.subscription_id = d.subscription_id AND earlier.ordering_key = d.ordering_key
        AND earlier.id < d.id AND earlier.due_at IS NOT NULL))
  ORDER BY d.due_at
  LIMIT $3
  FOR UPDATE SKIP LOCKED
), claimed AS (
  UPDATE deliveries d
  SET status = 'processing', lease_owner = $1, fence = fence + 1,
    due_at = now() + $2::bigint * interval '1 millisecond', updated_at = now()
  FROM due
  WHERE d.id = due.id
  RETURNING d.id, d.tenant_id, d.event_uid, d.subscription_id, d.ordering_key, d.attempts - d.attempts_before AS attempts, d.is_manual, d.fence
)
SELECT c.id, c.tenant_id, c.subscription_id, c.ordering_key, c.attempts, c.is_manual, c.fence,
  e.id AS event_id, e.type, e.created_at, e.data, coalesce(e.source = 'tidegate', FALSE) AS is_operational
FROM claimed c JOIN events e ON e.uid = c.event_uid
