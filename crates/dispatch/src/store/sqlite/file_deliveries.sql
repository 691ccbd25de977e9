-- In the order of the tree, so that each of its pages is changed once. What was deleted meanwhile is not filed.
INSERT OR IGNORE INTO filed_deliveries (tenant_id, subscription_id, id)
SELECT d.tenant_id, d.subscription_id, d.id
FROM unfiled u CROSS JOIN json_each(u.deliveries) fresh CROSS JOIN deliveries d ON d.id = fresh.value
ORDER BY d.tenant_id, d.subscription_id, d.id
