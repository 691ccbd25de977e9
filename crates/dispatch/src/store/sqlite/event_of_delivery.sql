SELECT id, type, created_at, data, source IS 'tidegate', trace FROM events WHERE uid = ?1
