-- What changed is read in pages, and the policies of a tenant that ends all change in one version.
DROP INDEX gates_changed;
CREATE INDEX gates_changed ON gates (version, target) WHERE version > 0;
