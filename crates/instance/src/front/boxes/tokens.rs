//! `lycosa.token.add`, `.revoke` and `.list`: tokens for doors whose clients do not log in, see [`crate::front::tokens`].
//!
//! Only `admin`, a user who may write everything, or an administrator's token may call them.

use lycosa_store::{Access, user};
use lycosa_tuple::value::Value;

use super::arguments::Arguments;
use super::info::seconds;
use crate::shard::tokens::{self, NewToken};
use crate::{Caller, Instance, Result, Token, TokenDigest, TokenRole};

/// Random bytes of a secret.
const SECRET_SIZE: usize = 32;

/// Secrets begin with it, so that scanners recognize a secret in a log or a repository.
const SECRET_PREFIX: &str = "lycosa_";

const ADD_USAGE: &str =
    "lycosa.token.add(name, {role = 'viewer' | 'operator' | 'administrator', tubes = {...}, ttl = seconds})";

impl Instance {
    /// `lycosa.token.add(name, {role, tubes, ttl})`: the new token as a map, with its `secret`.
    pub(super) fn add_token(&mut self, caller: &Caller, args: &[u8]) -> Result<Value> {
        self.check_token_maker(caller)?;
        let arguments = Arguments::decode(ADD_USAGE, args)?;
        let name = arguments.text(0)?.to_owned();
        let options = arguments.get(1).ok_or_else(|| arguments.usage())?;
        let role = options.get("role").and_then(Value::as_str).and_then(TokenRole::parse);
        let role = role.ok_or_else(|| arguments.usage())?;
        let tubes = options.get("tubes").and_then(Value::as_array).ok_or_else(|| arguments.usage())?;
        let tubes = tubes.iter().map(|tube| tube.as_str().map(str::to_owned)).collect::<Option<_>>();
        let ttl = match options.get("ttl") {
            None | Some(Value::Nil) => None,
            Some(ttl) => Some(microseconds(ttl).ok_or_else(|| arguments.usage())?),
        };
        let mut bytes = [0; SECRET_SIZE];
        (self.front.process.entropy)(&mut bytes);
        let mut number = [0; 8];
        (self.front.process.entropy)(&mut number);
        let number = u64::from_le_bytes(number);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let secret = format!("{SECRET_PREFIX}{digits}");
        let digest = TokenDigest::of(secret.as_bytes());
        let tubes = tubes.ok_or_else(|| arguments.usage())?;
        let token = self.shard.data().add_token(&NewToken { number, name, digest, role, tubes, ttl })?;
        let mut shown = self.shown(&token);
        shown.push(("secret".into(), secret.into()));
        Ok(Value::Map(shown))
    }

    /// `lycosa.token.revoke(name)`.
    pub(super) fn revoke_token(&mut self, caller: &Caller, args: &[u8]) -> Result<Value> {
        self.check_token_maker(caller)?;
        let arguments = Arguments::decode("lycosa.token.revoke(name)", args)?;
        self.shard.data().revoke_token(arguments.text(0)?)?;
        Ok(Value::from(true))
    }

    /// `lycosa.token.list()`: an array of maps.
    pub(super) fn list_tokens(&self, caller: &Caller) -> Result<Value> {
        self.check_token_maker(caller)?;
        let tokens = tokens::all(self.shard.store());
        Ok(Value::Array(tokens.iter().map(|token| Value::Map(self.shown(token))).collect()))
    }

    /// A token can do what `admin` can, so only a user who may write everything makes one.
    fn check_token_maker(&self, caller: &Caller) -> Result<()> {
        let user = caller.effective;
        if user == user::ADMIN { Ok(()) } else { self.shard.check_universe(user, Access::WRITE) }
    }

    fn shown(&self, token: &Token) -> Vec<(Value, Value)> {
        vec![
            ("name".into(), token.name.as_str().into()),
            ("role".into(), token.role.name().into()),
            ("tubes".into(), Value::array(token.tubes.iter().map(String::as_str))),
            ("created".into(), seconds(token.created)),
            ("expires".into(), token.expires.map(seconds).into()),
            ("is_expired".into(), token.is_expired(self.shard.now()).into()),
        ]
    }
}

/// Seconds, whole or not, as microseconds; more than 0.
fn microseconds(seconds: &Value) -> Option<u64> {
    let seconds = match seconds {
        Value::Double(seconds) => *seconds,
        seconds => seconds.as_u64()? as f64,
    };
    (seconds > 0.0 && seconds < 1e12).then_some((seconds * 1e6) as u64)
}
