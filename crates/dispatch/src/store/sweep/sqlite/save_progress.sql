UPDATE jobs SET progress = ?3, state = iif(?5, 'done', state), finished_at = iif(?5, CAST(unixepoch('subsec') * 1000 AS INTEGER), NULL),
  lease_owner = iif(?5, NULL, lease_owner), due_at = iif(?5, NULL, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?4)
WHERE id = ?1 AND fence = ?2
