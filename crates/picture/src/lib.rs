//! Curves over time: as text for terminals, and as SVG for files and documents.
//!
//! Numbers and words go in, text comes out. `lycosa top`, `lycosa stats --history` and `lycosa bench` share this crate, so a
//! curve means the same in each of them: points at equal distances, the oldest first, and a gap where nothing is known.
//!
//! Invariants: a gap is never drawn as zero; a value above zero is never drawn as zero; a text has exactly the lines and
//! columns that were asked for. Absent: terminals, files, colors of terminals, the meaning of a number.

mod lane;
mod panel;
mod svg;

pub use lane::{Lane, fit, lane};
pub use panel::{Panel, Scale, Series};
pub use svg::{escaped, svg};

/// The next 1, 2 or 5 times a power of ten; 1 for numbers of 0 and less.
///
/// ```
/// assert_eq!([0.0, 0.3, 1.0, 3.0, 1_200.0].map(lycosa_picture::round_up), [1.0, 0.5, 1.0, 5.0, 2_000.0]);
/// ```
#[must_use]
pub fn round_up(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0].into_iter().map(|step| step * power);
    steps.into_iter().find(|top| *top >= value).unwrap_or(10.0 * power)
}
