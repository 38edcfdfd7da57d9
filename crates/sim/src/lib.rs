//! Deterministic simulator of a whole instance.
