-- With the subscriptions that each has a delivery to; the data only where $5 asks for it.
SELECT e.uid, e.id, e.type, e.source, e.ordering_key, CASE WHEN $5::boolean THEN e.data END AS data, e.created_at,
  (SELECT string_agg(d.subscription_id, ' ') FROM deliveries d WHERE d.event_uid = e.uid) AS receivers
FROM events e
WHERE e.tenant_id = $1 AND (e.tenant_id, e.uid) > ($1, $2) AND (e.tenant_id, e.uid) < ($1, $3)
ORDER BY e.uid
LIMIT $4
