-- A replay may have made a delivery of an event that has reached its age since: there is nothing left to send.
UPDATE deliveries d SET status = 'cancelled', due_at = NULL, lease_owner = NULL, fence = fence + 1, last_error = 'the event is older than dispatch.retention', updated_at = now()
WHERE d.due_at IS NOT NULL AND d.event_uid < $1 AND NOT EXISTS (SELECT 1 FROM events e WHERE e.uid = d.event_uid)
