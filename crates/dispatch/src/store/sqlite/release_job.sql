-- A worker that leaves gives it back at the place it has come to.
UPDATE jobs SET due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), lease_owner = NULL, fence = fence + 1
WHERE id = ?1 AND fence = ?2 AND due_at IS NOT NULL
