-- How long the oldest has waited: since it was due, or, if a limit put it off or it waits in a lane, since this attempt was first
-- due, and for its first one since it came in. What is parked for a subscription that is switched off waits on purpose. Of those the
-- next ten thousand are asked: every worker asks every few seconds, also above a backlog of millions. A flight whose deliveries
-- all have rows is gone within a second.
SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) - min(since) AS lag_ms FROM (
  SELECT min(due_at) AS since FROM deliveries WHERE due_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
  UNION ALL
  SELECT min(CASE WHEN d.attempts = 0 THEN coalesce(e.deliver_at, d.created_at) ELSE d.waits_since END)
  FROM (SELECT * FROM deliveries WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 10000) d
  JOIN events e ON e.uid = d.event_uid
  JOIN subscriptions s ON s.tenant_id = d.tenant_id AND s.id = d.subscription_id AND s.enabled
  WHERE d.status IN ('throttled', 'processing')
  UNION ALL
  SELECT min(created_at) FROM flights WHERE owner IS NULL OR created_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - 1000)
