SELECT max(created_at) AS newest FROM flights
