-- What changed is read in pages, and the rules of a tenant that ends all change in one version.
DROP INDEX limit_rules_by_version;
CREATE INDEX limit_rules_by_version ON limit_rules (version, id);
