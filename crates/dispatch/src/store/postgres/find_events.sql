SELECT k.tenant_id, k.id, k.hash, e.created_at
FROM event_keys k LEFT JOIN events e USING (uid)
WHERE (k.tenant_id, k.id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
