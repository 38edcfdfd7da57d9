//! Sockets, threads, timers and configuration around an instance.
