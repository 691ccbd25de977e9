-- A target was used. A tenant may be known by so many targets (?3) that have no policy.
INSERT INTO gates (tenant_id, target)
SELECT ?1, ?2
WHERE EXISTS (SELECT 1 FROM gates WHERE tenant_id = ?1 AND target = ?2)
   OR (SELECT count(*) FROM gates WHERE tenant_id = ?1 AND policy IS NULL) < ?3
ON CONFLICT (tenant_id, target) DO UPDATE SET used_at = excluded.used_at
