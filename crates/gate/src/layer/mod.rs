//! The primitives as tower layers.
