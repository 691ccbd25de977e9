DELETE FROM attempts WHERE delivery_id = ?1
