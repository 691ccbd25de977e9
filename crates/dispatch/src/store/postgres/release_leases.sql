-- A worker that leaves gives back what it holds, no attempt spent.
UPDATE deliveries SET status = CASE WHEN attempts > 0 THEN 'retrying' ELSE 'pending' END, due_at = now(), lease_owner = NULL, fence = fence + 1
WHERE lease_owner = $1 AND status = 'processing' AND due_at IS NOT NULL
