-- Each note by its first id.
SELECT coalesce(events ->> 0, deliveries ->> 0) FROM unfiled
