DELETE FROM master_keys WHERE id = ?1
