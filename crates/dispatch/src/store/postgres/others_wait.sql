-- Could a job of another tenant than $1 be worked on now?
SELECT 1 AS waits FROM jobs j
WHERE j.due_at <= now() AND j.tenant_id <> $1
  AND NOT EXISTS (SELECT 1 FROM jobs earlier WHERE earlier.tenant_id = j.tenant_id AND earlier.id < j.id AND earlier.due_at IS NOT NULL)
LIMIT 1
