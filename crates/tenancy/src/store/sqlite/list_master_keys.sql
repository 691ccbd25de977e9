SELECT id FROM master_keys
