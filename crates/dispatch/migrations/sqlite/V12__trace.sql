-- The trace that an event was accepted in, as a `traceparent`, so that its deliveries are parts of it. NULL: nobody traces it.
ALTER TABLE events ADD COLUMN trace TEXT;
