//! Breaker: stop calling a target that fails, for the whole fleet.
