-- Events older than retention, a few hundred at a time: all of whose deliveries have ended, or wait for nobody. A subscription that
-- was switched off not long ago may be resumed any moment. No id from ?2 on can be that old, so the young ones are not looked at.
SELECT e.uid FROM events e
WHERE e.uid < ?2 AND e.created_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
  AND NOT EXISTS (
    SELECT 1 FROM deliveries d JOIN subscriptions s ON s.tenant_id = d.tenant_id AND s.id = d.subscription_id
    WHERE d.event_uid = e.uid AND d.due_at IS NOT NULL
      AND (s.enabled OR (s.deleted_at IS NULL AND s.updated_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1)))
ORDER BY e.uid
LIMIT 500
