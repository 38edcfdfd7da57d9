//! What becomes of a reply whose rows, or whose reads, will never be confirmed.

use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::reply::{self, Content, Reply};

use crate::HANDING_OVER;

/// Appends the reply that takes the place of a whole `frame`: an error, unless the frame says already that nothing was done. A push is
/// left out.
pub(crate) fn replace(frame: &[u8], schema_version: u32, error: &ErrorObject, out: &mut Vec<u8>) {
    if is_refusal(frame) {
        out.extend_from_slice(frame);
    } else if !reply::is_push(frame) {
        reply::error(out, reply::sync_of(frame).unwrap_or(0), schema_version, error);
    }
}

/// Whether a whole reply says that its request was not executed, because this node is about to hand over. Functions in Lua, which may
/// have done something before that, cannot raise this error.
fn is_refusal(frame: &[u8]) -> bool {
    let Ok(Split::Frame { content, .. }) = frame::split(frame, usize::MAX) else { return false };
    let Ok(Reply { content: Content::Error(error), .. }) = reply::decode(content) else { return false };
    error.name() == Some(HANDING_OVER)
}
