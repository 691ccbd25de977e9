DELETE FROM unfiled
