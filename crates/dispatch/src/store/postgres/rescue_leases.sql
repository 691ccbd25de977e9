-- A lease that ends later than any lease can was not given by a worker.
UPDATE deliveries SET status = CASE WHEN attempts > 0 THEN 'retrying' ELSE 'pending' END, due_at = now(), lease_owner = NULL, fence = fence + 1
WHERE id IN (SELECT id FROM deliveries WHERE due_at > now() + $1::bigint * interval '1 millisecond' AND status = 'processing' LIMIT 1000)
RETURNING id
