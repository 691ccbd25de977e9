-- Only as it was looked at: whoever changed it meanwhile raised its fence.
UPDATE deliveries SET status = 'pending', attempts_before = attempts, is_manual = FALSE, fence = fence + 1, lease_owner = NULL,
  due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3, updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE id = ?1 AND fence = ?2 AND status <> 'processing'
