-- Only the holder of the latest fence writes; a late one changes nothing.
UPDATE OR FAIL deliveries
SET status = ?3, attempts = attempts + ?4, deferrals = deferrals + ?5, due_at = ?8 + ?6,
  last_error = iif(?3 = 'delivered', NULL, coalesce(?7, nullif(last_error, 'the subscription is switched off'))),
  is_manual = is_manual AND ?4 = 0, lease_owner = NULL, updated_at = ?8
WHERE id = ?1 AND fence = ?2 AND status = 'processing'
