-- With the subscriptions that each has a delivery to, in a row or in flight; the data only where ?5 asks for it.
WITH flying AS MATERIALIZED (
  SELECT d.value ->> 2 AS event_uid, d.value ->> 3 AS subscription_id FROM flights f CROSS JOIN json_each(f.deliveries) d)
SELECT e.uid, e.id, e.type, e.source, e.ordering_key, iif(?5, e.data, NULL) AS data, e.created_at,
  concat_ws(' ',
    (SELECT group_concat(d.subscription_id, ' ') FROM deliveries d WHERE d.event_uid = e.uid),
    (SELECT group_concat(f.subscription_id, ' ') FROM flying f WHERE f.event_uid = e.uid)) AS receivers
FROM events e INDEXED BY events_of_tenant
WHERE e.tenant_id = ?1 AND e.uid > ?2 AND e.uid < ?3
ORDER BY e.uid
LIMIT ?4
