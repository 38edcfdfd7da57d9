//! `lycosa.cluster.transfer`: the leader of a group hands over to another voter.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_store::Access;
use lycosa_tuple::value::Value;

use super::arguments::Arguments;
use super::sessions::MAX_REASON;
use crate::front::HandOver;
use crate::{Caller, Instance, Result};

const USAGE: &str = "lycosa.cluster.transfer([node[, {reason = text}]])";

impl Instance {
    /// `lycosa.cluster.transfer([node[, {reason}]])`: asks the voter `node` to lead, or the one whose log is the longest. Returns
    /// its number. The host hands over once the reply may leave: see [`Self::poll_hand_over`].
    ///
    /// # Errors
    /// No right; no member of a group; the member that is wanted cannot lead.
    pub(super) fn transfer(&mut self, caller: &Caller, args: &[u8]) -> Result<Value> {
        self.shard.check_universe(caller.effective, Access::WRITE)?;
        let arguments = Arguments::decode(USAGE, args)?;
        let wanted = match arguments.get(0) {
            None | Some(Value::Nil) => None,
            Some(node) => Some(node.as_u64().ok_or_else(|| arguments.usage())?),
        };
        let reason = arguments.options(1, &["reason"])?.text("reason")?.unwrap_or_default();
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
        let refused = |text: String| ErrorObject::client(ErrorCode::Unsupported, text);
        let election = self.shard.election().ok_or_else(|| {
            refused(
                "This server belongs to no group: docs/cluster.md says how three servers act as one"
                    .to_owned(),
            )
        })?;
        let node = election.successor(wanted).map_err(refused)?;
        let operation = format!("transfer to node {node}");
        self.shard.data().note_steered(caller, (&operation, reason.as_bytes()));
        self.front.hand_over = Some(HandOver { node, after: None });
        Ok(Value::map([("successor", Value::from(node))]))
    }

    /// The node that is to lead in place of this one, once the reply to the call that asked for it may leave.
    pub fn poll_hand_over(&mut self) -> Option<u64> {
        let journaling = self.shard.journaling();
        let (last, released) = (journaling.lsn(), journaling.released());
        // The call has written its entry of the audit log, for which the reply waits.
        let may_leave = |hand_over: &mut HandOver| *hand_over.after.get_or_insert(last) <= released;
        self.front.hand_over.take_if(may_leave).map(|hand_over| hand_over.node)
    }
}
