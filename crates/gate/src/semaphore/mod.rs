//! Semaphore: at most n holders of a key across the fleet.
