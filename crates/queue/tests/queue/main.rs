//! The queue driven from outside: a store, a queue, a clock that the test turns.

mod access;
mod attempts;
mod batch;
mod bulk;
mod consumers;
mod drivers;
mod follower;
mod foreign;
mod ignored_options;
mod jobs;
mod leases;
mod model;
mod owners;
mod pause;
mod rebuild;
mod recount;
mod repeat;
mod rig;
mod scenario;
mod status;
mod table;
mod want;
