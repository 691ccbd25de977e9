-- Every process asks for what changed since the version it knows, twice a second and after every change of its own.
CREATE INDEX subscriptions_by_version ON subscriptions (version);
