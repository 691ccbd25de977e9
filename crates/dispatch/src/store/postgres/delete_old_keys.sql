DELETE FROM event_keys WHERE uid < $1
