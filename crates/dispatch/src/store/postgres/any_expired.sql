SELECT EXISTS (SELECT 1 FROM flights WHERE until <= now())
