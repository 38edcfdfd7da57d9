//! Calls with a key that are made once, however often a client repeats them: see [`crate::shard::idempotency`].

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_store::user;
use lycosa_tuple::value::Value;
use sha2::{Digest, Sha256};

use crate::front::callee::Callee;
use crate::front::names::not_defined;
use crate::shard::idempotency::{self, Kept};
use crate::shard::request::NULL;
use crate::{Called, Caller, Instance, Result};

/// The key of a call, chosen by its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// Unique among the calls of a token within the window.
    pub key: String,
    /// What the call asks for, see [`Self::fingerprint`]: a key that comes again with another one is refused.
    pub fingerprint: String,
    /// How long the answer is kept, µs.
    pub window: u64,
}

impl Once {
    /// A digest of everything that makes a request what it is.
    #[must_use]
    pub fn fingerprint(parts: &[&[u8]]) -> String {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Instance {
    /// As [`Self::call`], for a procedure of the queue that answers tasks, once: a repetition within the window has the
    /// first answer, without the payloads, and changes nothing. The call never waits. An answer of null is not kept.
    ///
    /// # Errors
    /// As [`Self::call`]; the key was used for another call: the error's `name` is `OTHER_REQUEST`.
    pub fn call_once(
        &mut self,
        caller: &Caller,
        once: &Once,
        name: &[u8],
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called> {
        match caller.token {
            Some(token) => self.admit_token(token, name, args).map(drop)?,
            None => self.check_call(caller, name)?,
        }
        let Some(Callee::Queue(procedure, _)) = self.front.find(&self.shard, name) else {
            return Err(not_defined(name));
        };
        let owner = caller.token.map_or(0, |token| token.0);
        let now = self.shard.now();
        if let Some(Kept { fingerprint, answer }) =
            idempotency::find(self.shard.store(), owner, &once.key, now)
        {
            if fingerprint != once.fingerprint {
                let message = format!("the key {:?} was used for another request", once.key);
                let error = ErrorObject::client(ErrorCode::IllegalParams, message);
                return Err(error.with_name("OTHER_REQUEST"));
            }
            answer.write(out);
            return Ok(Called::Done { count: 1 });
        }
        let start = out.len();
        self.begin(user::ADMIN)?;
        let done = self.call_queue(&Caller { may_wait: false, ..*caller }, &procedure, args, out);
        let kept = done.and_then(|called| {
            if matches!(called, Called::Done { count: 1 }) && &out[start..] != NULL {
                let answer = brief(Value::decode(&out[start..]).unwrap_or(Value::Nil));
                let kept = Kept { fingerprint: once.fingerprint.clone(), answer };
                let expires = now.saturating_add(once.window);
                self.shard.data().keep_answer(owner, &once.key, kept, expires)?;
            }
            Ok(called)
        });
        match kept {
            Ok(called) => self.commit().map(|_| called),
            Err(error) => {
                out.truncate(start);
                self.rollback();
                Err(error)
            }
        }
    }
}

/// A task, or several, without payloads.
fn brief(answer: Value) -> Value {
    match answer {
        Value::Array(mut fields) if fields.first().is_some_and(|id| id.as_u64().is_some()) => {
            fields.truncate(2);
            fields.push(Value::Nil);
            Value::Array(fields)
        }
        Value::Array(tasks) => Value::Array(tasks.into_iter().map(brief).collect()),
        other => other,
    }
}
