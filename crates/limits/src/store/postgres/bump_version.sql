-- The row lock orders changes: versions become visible in the order of their numbers.
UPDATE limit_rule_version SET version = version + 1 RETURNING version
