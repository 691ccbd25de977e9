SELECT pg_postmaster_start_time() AS began
