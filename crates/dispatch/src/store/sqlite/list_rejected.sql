-- Without a tenant: everyone's, also those whose tenant could not be told.
SELECT id, tenant_id, topic, partition_no, offset_no, record_at, length(value) AS size, headers, reason, detail, created_at
FROM rejected_records
WHERE (?1 IS NULL OR tenant_id = ?1) AND (?2 IS NULL OR reason = ?2) AND (?3 IS NULL OR id < ?3)
ORDER BY id DESC
LIMIT ?4
