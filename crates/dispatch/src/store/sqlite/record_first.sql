-- The first that is said of a delivery makes its row, with the attempt that was made in it if it is short (?12 and on); if somebody
-- looked for it, it has one, and then the fence decides.
INSERT OR FAIL INTO deliveries (id, tenant_id, event_uid, subscription_id, status, attempts, deferrals, fence, due_at, last_error, created_at, updated_at,
  first_at, first_ms, first_status, first_headers, first_body, first_class, first_error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1 - ?6, ?7, ?11 + ?8, iif(?5 = 'delivered', NULL, ?9), ?11 - ?10, ?11, ?11 - ?12, ?12, ?13, ?14, ?15, ?16, ?17)
ON CONFLICT (id) DO UPDATE
SET status = excluded.status, attempts = attempts + excluded.attempts, deferrals = deferrals + excluded.deferrals, due_at = excluded.due_at,
  last_error = excluded.last_error, is_manual = is_manual AND excluded.attempts = 0, lease_owner = NULL, updated_at = excluded.updated_at,
  first_at = excluded.first_at, first_ms = excluded.first_ms, first_status = excluded.first_status, first_headers = excluded.first_headers,
  first_body = excluded.first_body, first_class = excluded.first_class, first_error = excluded.first_error
WHERE fence = excluded.fence AND status = 'processing'
