//! Once: one holder does a named piece of work, and the others learn its result.

mod claim;
mod memory;
mod redis;

#[cfg(test)]
mod equivalence;
