-- Of the oldest, which the primary key knows, those that retention is over for: so many at a time.
DELETE FROM audit WHERE id IN (
  SELECT id FROM (SELECT id, at FROM audit ORDER BY id LIMIT ?2)
  WHERE at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1)
RETURNING id
