-- A worker that leaves gives back what it holds, no attempt spent.
UPDATE deliveries SET status = iif(attempts > 0, 'retrying', 'pending'), due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), lease_owner = NULL, fence = fence + 1
WHERE lease_owner = ?1 AND status = 'processing' AND due_at IS NOT NULL
