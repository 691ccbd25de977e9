//! Once, case by case.
