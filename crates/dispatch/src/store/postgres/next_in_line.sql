-- These deliveries ($1, a JSON array) have ended: whatever is next in line behind them is due, unless its event is for later.
-- After their end is committed: a claim that put the next one off meanwhile is seen here, or sees that they have ended.
UPDATE deliveries d SET due_at = greatest(now(), (SELECT e.deliver_at FROM events e WHERE e.uid = d.event_uid))
FROM json_array_elements_text($1::text::json) AS gone (id)
JOIN deliveries ended ON ended.id = gone.id
CROSS JOIN LATERAL (
  SELECT next.id FROM deliveries next
  WHERE next.tenant_id = ended.tenant_id AND next.subscription_id = ended.subscription_id AND next.ordering_key = ended.ordering_key AND next.line > ended.line
    AND next.due_at IS NOT NULL
  ORDER BY next.line
  LIMIT 1
) behind
WHERE d.id = behind.id AND d.status = 'pending' AND d.due_at > now()
