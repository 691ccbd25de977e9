-- How long until something is due; negative when it already is, NULL when nothing waits.
SELECT min(due_at) - CAST(unixepoch('subsec') * 1000 AS INTEGER) AS due_in_ms FROM deliveries WHERE due_at IS NOT NULL
