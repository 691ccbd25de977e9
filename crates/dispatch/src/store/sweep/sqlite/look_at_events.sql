-- With the subscriptions that each has a delivery to; the data only where ?5 asks for it.
SELECT e.uid, e.id, e.type, e.source, e.ordering_key, iif(?5, e.data, NULL) AS data, e.created_at,
  (SELECT group_concat(d.subscription_id, ' ') FROM deliveries d WHERE d.event_uid = e.uid) AS receivers
FROM events e INDEXED BY events_of_tenant
WHERE e.tenant_id = ?1 AND e.uid > ?2 AND e.uid < ?3
ORDER BY e.uid
LIMIT ?4
