-- The row stays locked to the end of the batch: a cancel waits for it, and then ends the job.
SELECT 1 FROM jobs WHERE id = $1 AND fence = $2 AND due_at IS NOT NULL FOR UPDATE
