-- A call takes longer than its lease: whoever still has the latest fence keeps the delivery. One row a time.
UPDATE deliveries SET due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3
WHERE id = ?1 AND fence = ?2 AND status = 'processing'
