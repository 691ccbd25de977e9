-- ?1 says which: 'all', 'free', 'expired', 'lost' (leased for longer than any lease), or those of an owner. Of those that were made
-- until ?2, the first ten, as a JSON array; ?3 is now.
SELECT json_group_array(id) FROM (
  SELECT id FROM flights
  WHERE created_at <= ?2 AND CASE ?1 WHEN 'all' THEN TRUE WHEN 'free' THEN owner IS NULL WHEN 'expired' THEN until <= ?3
    WHEN 'lost' THEN owner IS NOT NULL AND coalesce(until > ?3 + 90000000, TRUE) ELSE owner = ?1 END
  ORDER BY id LIMIT 10)
