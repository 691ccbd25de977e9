DELETE FROM rejected_records WHERE created_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
