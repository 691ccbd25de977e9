-- $1 is a JSON array. What was put off in the moment in which the one before it ended is the head of its line now, and due after all.
UPDATE deliveries d SET due_at = now()
WHERE d.id = ANY (ARRAY(SELECT json_array_elements_text($1::text::json))) AND d.status = 'pending' AND d.due_at > now() AND NOT EXISTS (
  SELECT 1 FROM deliveries earlier
  WHERE earlier.tenant_id = d.tenant_id AND earlier.subscription_id = d.subscription_id AND earlier.ordering_key = d.ordering_key
    AND earlier.line < d.line AND earlier.due_at IS NOT NULL)
