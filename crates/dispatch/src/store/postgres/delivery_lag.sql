-- How long the oldest has waited: since it was due, or, if a limit put off its first attempt or it waits for one in a
-- lane, since it came in. What is parked for a subscription that is switched off waits on purpose.
SELECT (extract(epoch FROM now() - min(since)) * 1000)::bigint AS lag_ms FROM (
  SELECT min(due_at) AS since FROM deliveries WHERE due_at <= now()
  UNION ALL
  SELECT min(coalesce(e.deliver_at, d.created_at))
  FROM deliveries d
  JOIN events e ON e.uid = d.event_uid
  JOIN subscriptions s ON s.tenant_id = d.tenant_id AND s.id = d.subscription_id AND s.enabled
  WHERE d.due_at IS NOT NULL AND d.status IN ('throttled', 'processing') AND d.attempts = 0
) waiting
