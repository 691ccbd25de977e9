DELETE FROM rejected_records WHERE created_at < now() - $1::bigint * interval '1 millisecond'
