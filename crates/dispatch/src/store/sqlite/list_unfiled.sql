SELECT rowid FROM unfiled
