-- Unless it has changed since it was read.
UPDATE subscription_secrets SET sealed = ?5 WHERE tenant_id = ?1 AND subscription_id = ?2 AND id = ?3 AND sealed = ?4
