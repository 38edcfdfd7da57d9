//! Requests of several connections to a whole instance.

use lycosa_iproto::frame::{Split, split};

use crate::world::World;

/// The longest frame.
const FRAME_LIMIT: usize = 1 << 20;

/// Takes the bytes for steps, each a control byte and a frame. Checks at the end that every request has one reply or
/// waits, and that the journal and a snapshot make the same data.
///
/// # Panics
/// If one of that is not so.
pub fn instance_frames(data: &[u8]) {
    let mut world = World::new();
    let mut rest = data;
    while let Some((&control, after)) = rest.split_first() {
        match split(after, FRAME_LIMIT) {
            Ok(Split::Frame { content, consumed }) => {
                world.step(control, content);
                rest = &after[consumed..];
            }
            Ok(Split::NeedMore(_)) => break,
            Err(error) => {
                world.break_stream(&error);
                break;
            }
        }
    }
    world.end();
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::request::Body;
    use lycosa_tuple::value::Value;

    use super::*;
    use crate::corpus::script;
    use crate::world::{ADMIN, GUEST, SYNC};

    #[test]
    fn a_session_ends_with_the_same_data_in_journal_and_memory() {
        let put = Value::array(["data"]).encode();
        let tuple = Value::array([1000]).encode();
        let steps = [
            (GUEST, Body::Call { name: b"queue.tube.fifo:take", args: &[0x90] }),
            (GUEST | SYNC, Body::Call { name: b"queue.tube.fifo:put", args: &put }),
            (ADMIN, Body::Insert { space: 512, tuple: &tuple }),
            (ADMIN, Body::Insert { space: 512, tuple: &tuple }),
            (GUEST, Body::Unknown(200)),
        ];
        instance_frames(&script(&steps));
        instance_frames(&[script(&steps), vec![0, 0xc1]].concat());
    }
}
