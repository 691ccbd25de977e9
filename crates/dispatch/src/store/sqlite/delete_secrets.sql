-- Of one subscription that was deleted, or (?2 is NULL) of all: nothing signs with them any more.
DELETE FROM subscription_secrets WHERE tenant_id = ?1 AND (?2 IS NULL OR subscription_id = ?2)
