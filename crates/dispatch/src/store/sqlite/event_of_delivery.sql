SELECT id, type, created_at, data, source IS 'tidegate' FROM events WHERE uid = ?1
