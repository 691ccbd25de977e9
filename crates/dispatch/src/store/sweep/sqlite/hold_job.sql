SELECT 1 FROM jobs WHERE id = ?1 AND fence = ?2 AND due_at IS NOT NULL
