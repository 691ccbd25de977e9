SELECT child.relname::text
FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
WHERE inhparent = $1::text::regclass
ORDER BY 1
