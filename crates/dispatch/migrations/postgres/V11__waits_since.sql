-- Since when a delivery waits for its next attempt, however often it is put off: claims keep here what was `due_at`. NULL: no claim
-- has met its row yet.
ALTER TABLE deliveries ADD COLUMN waits_since timestamptz;
