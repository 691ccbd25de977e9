-- Once nothing speaks of them any more, in a row or in flight; their ids may be used again.
WITH gone AS (
  DELETE FROM events e WHERE e.uid = ANY ($1::text[]) AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_uid = e.uid)
    AND e.uid NOT IN (SELECT unnest(f.events) FROM flights f)
  RETURNING e.uid, e.tenant_id, e.id
), freed AS (
  DELETE FROM event_keys k USING gone WHERE k.tenant_id = gone.tenant_id AND k.id = gone.id AND k.uid = gone.uid
)
SELECT uid FROM gone
