DELETE FROM event_keys k WHERE k.uid < $1 AND NOT EXISTS (SELECT 1 FROM events e WHERE e.uid = k.uid)
