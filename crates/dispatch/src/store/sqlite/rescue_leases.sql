-- A lease that ends later than any lease can was not given by a worker. ?2 is a JSON array of such.
UPDATE deliveries SET status = iif(attempts > 0, 'retrying', 'pending'), due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), lease_owner = NULL, fence = fence + 1
WHERE id IN (SELECT value FROM json_each(?2)) AND due_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?1 AND status = 'processing'
RETURNING id
