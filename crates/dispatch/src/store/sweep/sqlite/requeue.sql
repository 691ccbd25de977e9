-- Only as it was looked at: whoever changed it meanwhile raised its fence. What waits for its event's time goes on waiting.
UPDATE deliveries SET status = 'pending', attempts_before = attempts, is_manual = FALSE, fence = fence + 1, lease_owner = NULL,
  due_at = max(CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3,
    CASE WHEN due_at IS NULL THEN 0 ELSE coalesce((SELECT e.deliver_at FROM events e WHERE e.uid = deliveries.event_uid), 0) END), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE id = ?1 AND fence = ?2 AND status <> 'processing'
