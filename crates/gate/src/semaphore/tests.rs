//! The semaphore, case by case.
