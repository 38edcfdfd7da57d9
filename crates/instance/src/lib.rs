//! The heart: one door for every request, every change and every deadline.
