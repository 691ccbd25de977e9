-- A subscription is on again: what was parked for it may go.
UPDATE deliveries SET due_at = now()
WHERE tenant_id = $1 AND subscription_id = $2 AND status = 'throttled'
