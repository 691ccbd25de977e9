-- With an owner they are born leased to it; without one they wait until $7 (or now) to be claimed.
INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, line, status, fence, lease_owner, due_at)
SELECT id, tenant_id, event_uid, subscription_id, ordering_key, CASE WHEN ordering_key IS NOT NULL THEN nextval('delivery_lines') END,
  CASE WHEN lease_owner IS NULL THEN 'pending' ELSE 'processing' END,
  CASE WHEN lease_owner IS NULL THEN 0 ELSE 1 END,
  lease_owner,
  CASE WHEN lease_owner IS NULL THEN coalesce(deliver_at, now()) ELSE now() + $8::bigint * interval '1 millisecond' END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
  AS input (id, tenant_id, event_uid, subscription_id, ordering_key, lease_owner, deliver_at)
