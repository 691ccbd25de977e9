//! Limiter: at most so much per time, for the whole fleet.
