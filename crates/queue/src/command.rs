//! Calls as they come: the command that a caller gives, and the call of a tube's method that it becomes.

use std::fmt;

use crate::Caller;
use crate::arguments::Arguments;
use crate::error::Result;
use crate::procedure::Procedure;
use crate::right::Right;
use crate::tube::handle::TubeIndex;

/// One call of a procedure.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// The procedure.
    pub procedure: &'a Procedure,
    /// Why the caller may call it.
    pub right: Right,
    /// Number of the request, larger than the numbers of earlier calls: a parked call is answered with it.
    pub request: u64,
    /// A MessagePack array.
    pub arguments: &'a [u8],
    /// What hears of the replicas that a put asks for.
    pub concern: Concern<'a>,
}

/// What hears of the option.
type Hear<'a> = dyn Fn(&[u8]) -> Result<()> + 'a;

/// Hears the option `replicas` of each put as it came, before the put is done, and may refuse the call
/// ([`Error::ConcernRefused`]). The queue itself knows no replicas.
#[derive(Clone, Copy)]
pub struct Concern<'a>(Option<&'a Hear<'a>>);

impl<'a> Concern<'a> {
    /// Nothing hears of them.
    pub const NONE: Self = Self(None);

    /// This function hears of them.
    #[must_use]
    pub fn new(hear: &'a Hear<'a>) -> Self {
        Self(Some(hear))
    }

    #[inline]
    pub(crate) fn admit(self, replicas: Option<&[u8]>) -> Result<()> {
        if let (Some(hear), Some(replicas)) = (self.0, replicas) { hear(replicas) } else { Ok(()) }
    }
}

impl fmt::Debug for Concern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Concern({})", if self.0.is_some() { "heard" } else { "not heard" })
    }
}

/// One call of a method of the queue, as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueCall<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) arguments: Arguments<'a>,
}

/// One call of a tube's method, as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// With the trust that comes with every tube.
    pub(crate) caller: &'a Caller,
    /// The caller without that trust.
    pub(crate) asker: &'a Caller,
    /// The tube.
    pub(crate) index: TubeIndex,
    pub(crate) arguments: Arguments<'a>,
    /// The procedure, and all that came with its call.
    pub(crate) command: &'a Command<'a>,
}
