-- Leases that end later than any lease can. Millions of events may be for later, so of what is due that late the first and the
-- last ten thousand are asked; what lies between comes to the front in time.
SELECT id FROM (
  SELECT * FROM (SELECT id, status FROM deliveries WHERE due_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?1 ORDER BY due_at LIMIT 10000)
  UNION ALL
  SELECT * FROM (SELECT id, status FROM deliveries WHERE due_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?1 ORDER BY due_at DESC LIMIT 10000))
WHERE status = 'processing'
LIMIT 1000
