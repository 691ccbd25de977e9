//! Gate: rate, circuit and concurrency of one target, decided together.
