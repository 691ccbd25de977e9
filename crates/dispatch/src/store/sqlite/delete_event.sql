DELETE FROM events WHERE uid = ?1
