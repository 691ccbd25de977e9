-- A deleted tenant stays as its id, which is never given out again: what it left behind is nobody else's.
ALTER TABLE tenants ADD COLUMN deleted_at timestamptz;
