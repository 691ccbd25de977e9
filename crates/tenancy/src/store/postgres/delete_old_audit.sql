-- Of the oldest, which the primary key knows, those that retention is over for: so many at a time.
DELETE FROM audit WHERE id IN (
  SELECT id FROM (SELECT id, at FROM audit ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) AS oldest
  WHERE at < now() - $1::bigint * interval '1 millisecond')
RETURNING id
