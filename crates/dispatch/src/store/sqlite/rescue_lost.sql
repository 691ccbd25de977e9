-- What should be due some time and is not: without this nobody would ever take it. The list is the index's own.
UPDATE deliveries SET status = iif(attempts > 0, 'retrying', 'pending'), due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), lease_owner = NULL, fence = fence + 1
WHERE id IN (
  SELECT id FROM deliveries WHERE due_at IS NULL AND status <> 'delivered' AND status <> 'failed' AND status <> 'cancelled' LIMIT 1000)
RETURNING id
