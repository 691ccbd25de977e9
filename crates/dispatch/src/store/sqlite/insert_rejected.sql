-- A record that is read again is known already.
INSERT INTO rejected_records (id, tenant_id, topic, partition_no, offset_no, record_at, key, value, headers, reason, detail)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (topic, partition_no, offset_no, record_at) DO NOTHING
