UPDATE deliveries SET status = 'cancelled', due_at = NULL, fence = fence + 1, lease_owner = NULL, last_error = 'cancelled by hand', updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE id = ?1 AND fence = ?2 AND status <> 'processing' AND due_at IS NOT NULL
