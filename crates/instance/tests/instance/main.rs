//! An [`lycosa_instance::Instance`] over a new store, driven frame by frame without sockets, files or a clock.

mod access;
mod accounts;
mod admission;
mod calls;
mod checkpoint;
mod declared;
mod definitions;
mod disk_space;
mod doors;
mod durability;
mod expiration;
mod failure;
mod foreign;
mod idempotency;
mod limits;
mod malformed;
mod read_only;
mod rig;
mod rows;
mod selects;
mod sessions;
mod states;
mod status;
mod tokens;
mod waiting;
mod wishes;
