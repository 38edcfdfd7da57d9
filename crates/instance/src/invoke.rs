//! Programs: CALL of names that are not native, and EVAL.
//!
//! The instance runs no programs. With [`Settings::lua`](crate::Settings::lua) it hands out an [`Invoke`] for each such
//! request ([`Instance::poll_invoke`]), after it has checked the right to execute, and parks the request until
//! [`Instance::finish_invoke`]. The program's own statements and calls come back through the functions that everybody
//! uses, with [`Invoke::caller`]'s rights.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;

use crate::caller::{ParkedCall, ReplyTo};
use crate::{Caller, Instance, RequestId};

/// What a program is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvokeKind {
    /// A function by its name.
    Call {
        /// The name as it came; a function of `_func` or a global one.
        name: Vec<u8>,
    },
    /// An expression.
    Eval {
        /// Its text.
        expression: Vec<u8>,
    },
}

/// A request for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoke {
    /// To be given to [`Instance::finish_invoke`] and [`Instance::push`].
    pub request: RequestId,
    /// Who asks. Its effective user is the owner of the function if that runs with its owner's rights.
    pub caller: Caller,
    /// What is to run.
    pub kind: InvokeKind,
    /// Its arguments: a MessagePack array.
    pub args: Vec<u8>,
}

impl Instance {
    /// The next request for a program.
    pub fn poll_invoke(&mut self) -> Option<Invoke> {
        self.invokes.pop_front()
    }

    /// Parks a request until a program has run.
    pub(crate) fn invoke(
        &mut self,
        caller: Caller,
        kind: InvokeKind,
        args: &[u8],
        reply: ReplyTo,
    ) -> RequestId {
        let request = self.parked.next_request();
        self.park(request, ParkedCall { session: caller.session, reply, is_invoke: true });
        self.invokes.push_back(Invoke { request, caller, kind, args: args.to_vec() });
        request
    }

    /// A program has ended: answers the request with the number of its values and the values back to back. Nothing if
    /// the caller is gone.
    pub fn finish_invoke(&mut self, request: RequestId, result: Result<(u32, &[u8]), ErrorObject>) {
        self.answer(request, result);
    }

    /// Sends a value to the caller of a program before its answer (`box.session.push`). `value` is one MessagePack value.
    ///
    /// # Errors
    /// The caller is no connection, or is gone.
    pub fn push(&mut self, request: RequestId, value: &[u8]) -> Result<(), ErrorObject> {
        let reply = self.parked.get(request).map(|call| call.reply);
        let Some(ReplyTo::Frame { slot, sync, .. }) = reply else {
            let message = "Session of the caller does not support push()";
            return Err(ErrorObject::client(ErrorCode::Unsupported, message));
        };
        let schema_version = self.data.store().schema_version();
        if let Some(connection) = self.connections.get_mut(slot) {
            reply::push(connection.replies.buffer(), sync, schema_version, value);
            self.finish_reply(slot);
        }
        Ok(())
    }
}
