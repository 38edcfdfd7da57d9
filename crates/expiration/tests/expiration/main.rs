//! Tasks over a real store, with a clock that the test moves.

mod life;
mod model;
mod rig;
mod schedule;
