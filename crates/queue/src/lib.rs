//! Tubes, tasks, sessions and drivers on top of the store.
