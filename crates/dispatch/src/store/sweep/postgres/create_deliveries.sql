-- Of events that are still there, not before their time, in the order of their ids.
INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, status, due_at)
SELECT input.id, e.tenant_id, e.uid, input.subscription_id, input.ordering_key, 'pending',
  greatest(now() + input.delay_ms * interval '1 millisecond', e.deliver_at)
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
  AS input (id, event_uid, subscription_id, ordering_key, delay_ms)
JOIN events e ON e.uid = input.event_uid
ORDER BY input.id
