//! Layer
