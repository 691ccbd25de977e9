SELECT e.uid, e.id, e.type, e.source, e.ordering_key, e.deliver_at, e.data, e.created_at FROM event_keys k JOIN events e USING (uid) WHERE k.tenant_id = $1 AND k.id = $2
