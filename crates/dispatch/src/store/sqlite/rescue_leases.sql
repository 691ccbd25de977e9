-- A lease that ends later than any lease can was not given by a worker.
UPDATE deliveries SET status = iif(attempts > 0, 'retrying', 'pending'), due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), lease_owner = NULL, fence = fence + 1
WHERE id IN (SELECT id FROM deliveries WHERE due_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?1 AND status = 'processing' LIMIT 1000)
RETURNING id
