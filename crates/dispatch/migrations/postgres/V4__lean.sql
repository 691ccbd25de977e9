-- Nobody looks an attempt up by its id, and what is old is found by a range that lies together on disk.
ALTER TABLE attempts DROP CONSTRAINT attempts_pkey;
DROP INDEX event_keys_by_age;
CREATE INDEX event_keys_by_age ON event_keys USING brin (uid);
