//! The status of tubes and of the queue: plain data for all interfaces of the server, kept at O(1) per operation.
//!
//! [`TubeStatus`] and [`QueueStatus`] are copies of what the queue keeps ([`crate::statistics`], [`meter`]), with a few
//! look-ups for the ages of the oldest tasks. [`Queue::statuses`] reads tubes a page at a time, so that no reader holds the
//! loop.

pub(crate) mod busiest;
pub mod histogram;
pub mod history;
mod issue;
pub mod meter;
pub(crate) mod oldest;
pub(crate) mod rates;
pub(crate) mod sample;
pub mod spell;
mod survey;
mod view;
mod write;

pub use histogram::Histogram;
pub use history::{History, MAX_HISTORIES};
pub use issue::{Gravity, Issue};
pub use meter::{MAX_BYTES, MAX_METERS};
pub use rates::Rates;
pub use survey::Survey;
pub use view::{Page, QueueStatus, SubQueueStatus, TubeStatus};
