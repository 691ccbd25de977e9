-- The oldest that nobody has, as far as all of their deliveries fit into ?4.
UPDATE flights SET owner = ?1, until = ?2 + ?3
WHERE id IN (
  SELECT id FROM (
    SELECT id, sum(size) OVER (ORDER BY id) AS total FROM (
      SELECT id, size FROM flights WHERE owner IS NULL ORDER BY id LIMIT 10))
  WHERE total <= ?4)
RETURNING id, deliveries, created_at
