-- They wait until $6 (or now) to be claimed, and stand in their lines in the order of the arrays.
INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, line, status, due_at)
SELECT id, tenant_id, event_uid, subscription_id, ordering_key, CASE WHEN ordering_key IS NOT NULL THEN nextval('delivery_lines') END,
  'pending', coalesce(deliver_at, now())
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
  AS input (id, tenant_id, event_uid, subscription_id, ordering_key, deliver_at)
