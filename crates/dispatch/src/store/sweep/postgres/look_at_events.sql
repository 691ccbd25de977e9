-- With the subscriptions that each has a delivery to, in a row or in flight; the data only where $5 asks for it.
WITH flying AS MATERIALIZED (SELECT unnest(f.events) AS event_uid, unnest(f.subscriptions) AS subscription_id FROM flights f)
SELECT e.uid, e.id, e.type, e.source, e.ordering_key, CASE WHEN $5::boolean THEN e.data END AS data, e.created_at,
  concat_ws(' ',
    (SELECT string_agg(d.subscription_id, ' ') FROM deliveries d WHERE d.event_uid = e.uid),
    (SELECT string_agg(f.subscription_id, ' ') FROM flying f WHERE f.event_uid = e.uid)) AS receivers
FROM events e
WHERE e.tenant_id = $1 AND (e.tenant_id, e.uid) > ($1, $2) AND (e.tenant_id, e.uid) < ($1, $3)
ORDER BY e.uid
LIMIT $4
