-- Nobody else works on this file, so every lease in it is a dead worker's; no attempt is spent.
UPDATE deliveries SET status = iif(attempts > 0, 'retrying', 'pending'), due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), lease_owner = NULL, fence = fence + 1
WHERE status = 'processing' AND due_at IS NOT NULL
