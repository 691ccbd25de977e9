//! The rules of the breaker, case by case.
