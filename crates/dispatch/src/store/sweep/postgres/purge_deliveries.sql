-- Never one that is still due.
WITH gone AS (
  DELETE FROM deliveries d USING unnest($1::text[], $2::bigint[]) AS input (id, fence)
  WHERE d.id = input.id AND d.fence = input.fence AND d.due_at IS NULL
  RETURNING d.id
), attempted AS (
  DELETE FROM attempts a USING gone WHERE a.delivery_id = gone.id
)
SELECT id FROM gone
