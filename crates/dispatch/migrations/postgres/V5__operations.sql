-- Set while its circuit is open, so that each change is told once in the whole fleet.
ALTER TABLE subscriptions ADD COLUMN circuit_opened_at timestamptz;

-- What should be due some time and is not. Empty, unless someone changed rows by hand.
CREATE INDEX deliveries_lost ON deliveries (id)
  WHERE due_at IS NULL AND status IN ('pending', 'processing', 'retrying', 'throttled');
