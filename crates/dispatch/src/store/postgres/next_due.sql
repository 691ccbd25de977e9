-- How long until something is due; negative when it already is, NULL when nothing waits.
SELECT (extract(epoch FROM min(due_at) - now()) * 1000)::bigint AS due_in_ms FROM deliveries WHERE due_at IS NOT NULL
