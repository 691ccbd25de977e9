-- Given back at the place it has come to, for others that wait or because its worker leaves.
UPDATE jobs SET due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), lease_owner = NULL, fence = fence + 1
WHERE id = ?1 AND fence = ?2 AND due_at IS NOT NULL
