-- A record that is read again is known already.
INSERT INTO rejected_records (id, tenant_id, topic, partition_no, offset_no, record_at, key, value, headers, reason, detail)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::bytea[], $8::bytea[], $9::text[], $10::text[], $11::text[])
ON CONFLICT (topic, partition_no, offset_no, record_at) DO NOTHING
