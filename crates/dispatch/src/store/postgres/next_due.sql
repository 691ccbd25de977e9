-- How long until something can be claimed; negative when it already can, no row when nothing waits. What stands behind
-- another in its line does not count: it is due when that one has ended.
SELECT (extract(epoch FROM d.due_at - now()) * 1000)::bigint AS due_in_ms FROM deliveries d
WHERE d.due_at IS NOT NULL
  AND (d.ordering_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM deliveries earlier
    WHERE earlier.subscription_id = d.subscription_id AND earlier.ordering_key = d.ordering_key
      AND earlier.id < d.id AND earlier.due_at IS NOT NULL))
ORDER BY d.due_at
LIMIT 1
