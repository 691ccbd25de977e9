INSERT INTO flights (id, owner, until, size, deliveries, tenants, events, subscriptions)
VALUES ($1, $2, now() + $3::bigint * interval '1 millisecond', cardinality($4::text[]), $4, $5, $6, $7)
