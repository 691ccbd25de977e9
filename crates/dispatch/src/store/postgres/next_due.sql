-- How long until something can be claimed; negative when it already can, NULL when nothing waits.
SELECT (extract(epoch FROM min(due_at) - now()) * 1000)::bigint AS due_in_ms FROM (
  (SELECT due_at FROM deliveries WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1)
  UNION ALL
  SELECT min(until) FROM flights WHERE until IS NOT NULL
  UNION ALL
  (SELECT created_at FROM flights WHERE owner IS NULL ORDER BY id LIMIT 1)
) next
