-- Events older than retention whose deliveries have all ended, a few hundred at a time.
SELECT e.uid FROM events e
WHERE e.created_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_uid = e.uid AND d.due_at IS NOT NULL)
ORDER BY e.uid
LIMIT 500
