UPDATE jobs SET progress = $3, state = CASE WHEN $5 THEN 'done' ELSE state END,
  finished_at = CASE WHEN $5 THEN now() END, lease_owner = CASE WHEN $5 THEN NULL ELSE lease_owner END,
  due_at = CASE WHEN $5 THEN NULL ELSE now() + $4::bigint * interval '1 millisecond' END
WHERE id = $1 AND fence = $2
