//! Violations: reports of checkers about broken promises.

/// A promise that was broken, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Violation(pub(crate) String);

/// The outcome of a check.
pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// Ends the function with a [`Violation`] unless the condition holds.
macro_rules! hold {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::violation::Violation(format!($($text)+)));
        }
    };
}

pub(crate) use hold;
