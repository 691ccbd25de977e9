-- Only as it was looked at: whoever changed it meanwhile raised its fence. What waits for its event's time goes on waiting.
UPDATE deliveries d
SET status = 'pending', attempts_before = attempts, is_manual = FALSE, fence = d.fence + 1, lease_owner = NULL,
  due_at = greatest(now() + input.delay_ms * interval '1 millisecond',
    CASE WHEN d.due_at IS NOT NULL THEN (SELECT e.deliver_at FROM events e WHERE e.uid = d.event_uid) END), updated_at = now()
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS input (id, fence, delay_ms)
WHERE d.id = input.id AND d.fence = input.fence AND d.status <> 'processing'
