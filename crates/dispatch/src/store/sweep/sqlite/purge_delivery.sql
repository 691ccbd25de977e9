-- Never one that is still due.
DELETE FROM deliveries WHERE id = ?1 AND fence = ?2 AND due_at IS NULL
