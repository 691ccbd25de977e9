-- A lease that ends later than any lease can was not given by a worker. $2 is a JSON array of such.
UPDATE deliveries SET status = CASE WHEN attempts > 0 THEN 'retrying' ELSE 'pending' END, due_at = now(), lease_owner = NULL, fence = fence + 1
WHERE id = ANY (ARRAY(SELECT json_array_elements_text($2::text::json)))
  AND due_at > now() + $1::bigint * interval '1 millisecond' AND status = 'processing'
RETURNING id
