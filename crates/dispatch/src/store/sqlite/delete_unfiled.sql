DELETE FROM unfiled WHERE rowid = ?1
