DELETE FROM rejected_records WHERE id = ?1 AND (?2 IS NULL OR tenant_id = ?2) RETURNING id
