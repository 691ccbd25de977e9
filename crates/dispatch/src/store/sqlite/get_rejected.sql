SELECT id, tenant_id, topic, partition_no, offset_no, record_at, length(value) AS size, headers, reason, detail, created_at, key, value
FROM rejected_records
WHERE id = ?1 AND (?2 IS NULL OR tenant_id = ?2)
