-- How long until something can be claimed; negative when it already can, no row when nothing waits.
SELECT (extract(epoch FROM due_at - now()) * 1000)::bigint AS due_in_ms FROM deliveries
WHERE due_at IS NOT NULL
ORDER BY due_at
LIMIT 1
