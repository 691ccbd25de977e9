-- These deliveries (?1, a JSON array) have ended: whatever is next in line behind them is due, unless its event is for later.
UPDATE deliveries SET due_at = max(CAST(unixepoch('subsec') * 1000 AS INTEGER), coalesce((SELECT e.deliver_at FROM events e WHERE e.uid = event_uid), 0))
WHERE due_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) AND status = 'pending' AND id IN (
  SELECT (
    SELECT next.id FROM deliveries next
    WHERE next.tenant_id = ended.tenant_id AND next.subscription_id = ended.subscription_id AND next.ordering_key = ended.ordering_key AND next.id > ended.id
      AND next.due_at IS NOT NULL
    ORDER BY next.id
    LIMIT 1)
  FROM json_each(?1) gone CROSS JOIN deliveries ended ON ended.id = gone.value AND ended.ordering_key IS NOT NULL)
