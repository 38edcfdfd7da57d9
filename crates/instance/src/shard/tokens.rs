//! Tokens: secrets that stand for a role over tubes, for doors whose clients do not log in as users.
//!
//! A token is a row of [`SPACE_NAME`]: `[id, name, digest, role, tubes, created, expires]`. The space is created with the
//! first token. Rows are replicated and journaled like all others, so a token is valid on every replica and survives a
//! restart. The secret itself is stored nowhere: the row has its SHA-256, and 256 random bits need no slower hash.
//!
//! Each call looks the row up again, so a token that is revoked or expired is refused from the next call on, also when a
//! statement or a master removes the row. Invariants: an id is random and never used again; a row of another form is no
//! token. Absent: the functions that a role may call, see [`crate::front::tokens`].

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_queue::{SystemSpace, TokenId};
use lycosa_store::{IteratorType, SpaceId, Statement, Store, user};
use lycosa_tuple::value::Value;
use sha2::{Digest, Sha256};

use crate::Result;
use crate::shard::admission::Growth;
use crate::shard::data::Data;
use crate::shard::wire_error::OnWire;

/// The space of the tokens.
pub(crate) const SPACE_NAME: &str = "_lycosa_tokens";

const BY_ID: u32 = 0;
const BY_NAME: u32 = 1;
const BY_DIGEST: u32 = 2;

/// The longest name, in bytes.
const MAX_NAME: usize = 64;

static TOKENS: SystemSpace = SystemSpace {
    name: SPACE_NAME,
    fields: "id unsigned, name string, digest string, role string, tubes array, created unsigned, expires unsigned",
    indexes: &[("id", true, &[0]), ("name", true, &[1]), ("digest", true, &[2])],
};

/// The SHA-256 of a token's secret, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenDigest(String);

impl TokenDigest {
    /// The digest of a secret.
    #[must_use]
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The digest as text, for another member of the group.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digest that another member of the group has made.
    #[must_use]
    pub fn from_text(text: String) -> Self {
        Self(text)
    }
}

lycosa_queue::named! {
    /// The role of a token. Each role may do everything that the roles before it may do.
    #[derive(PartialOrd, Ord)]
    pub enum TokenRole {
        /// Looks.
        Viewer = "viewer",
        /// Puts, takes and steers tasks.
        Operator = "operator",
        /// Creates and drops tubes, takes snapshots, changes the instance's role, makes tokens.
        Administrator = "administrator",
    }
}

impl TokenRole {
    /// The role of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its number.
    pub id: TokenId,
    /// Its name, unique.
    pub name: String,
    /// Its role.
    pub role: TokenRole,
    /// The tubes that it is for: names, `mail-*` for all that begin so, `*` for every tube and the instance itself.
    pub tubes: Vec<String>,
    /// µs since the epoch.
    pub created: u64,
    /// When it ends, µs since the epoch; `None` for never.
    pub expires: Option<u64>,
}

impl Token {
    fn read(row: &[u8]) -> Option<Self> {
        let row = Value::decode(row).ok()?;
        let [id, name, _, role, tubes, created, expires, ..] = row.as_array()? else { return None };
        let tubes = tubes.as_array()?.iter().map(|tube| tube.as_str().map(str::to_owned));
        Some(Self {
            id: TokenId(id.as_u64()?),
            name: name.as_str()?.to_owned(),
            role: TokenRole::parse(role.as_str()?)?,
            tubes: tubes.collect::<Option<_>>()?,
            created: created.as_u64()?,
            expires: Some(expires.as_u64()?).filter(|expires| *expires > 0),
        })
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether it is for every tube, and so for the instance itself.
    #[must_use]
    pub fn is_of_every_tube(&self) -> bool {
        self.tubes.iter().any(|pattern| pattern == "*")
    }

    /// Whether it is for a tube.
    #[must_use]
    pub fn covers(&self, tube: &str) -> bool {
        self.tubes.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => tube.starts_with(beginning),
            None => tube == pattern,
        })
    }
}

/// The arguments of a new token.
#[derive(Debug, Clone)]
pub(crate) struct NewToken {
    /// Random, so that no other token has had it.
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) digest: TokenDigest,
    pub(crate) role: TokenRole,
    pub(crate) tubes: Vec<String>,
    /// How long it lives, µs; `None` for ever.
    pub(crate) ttl: Option<u64>,
}

fn space(store: &Store) -> Option<SpaceId> {
    TOKENS.known(store, 0)
}

fn find(store: &Store, index: u32, key: &Value) -> Option<Token> {
    let key = Value::Array(vec![key.clone()]).encode();
    // A space of that name with other indexes holds no tokens.
    store.get(space(store)?, index, &key).ok().flatten().and_then(Token::read)
}

/// The valid token with that number.
pub(crate) fn by_id(store: &Store, TokenId(id): TokenId, now: u64) -> Option<Token> {
    find(store, BY_ID, &id.into()).filter(|token| !token.is_expired(now))
}

/// The valid token whose secret has that digest.
pub(crate) fn by_digest(store: &Store, digest: &TokenDigest, now: u64) -> Option<Token> {
    find(store, BY_DIGEST, &digest.0.as_str().into()).filter(|token| !token.is_expired(now))
}

/// What changes when a token was added or removed.
pub(crate) fn revision(store: &Store) -> Option<(u64, u64)> {
    let space = store.space_by_name(SPACE_NAME)?;
    Some((space.identity(), space.revision()))
}

/// All tokens, in the order of their creation.
pub(crate) fn all(store: &Store) -> Vec<Token> {
    let rows = space(store).and_then(|space| store.range(space, BY_ID, IteratorType::All, &[0x90], 0).ok());
    // A row that cannot be read is no token.
    let mut tokens: Vec<_> = rows.into_iter().flatten().filter_map(Token::read).collect();
    tokens.sort_by_key(|token| token.created);
    tokens
}

impl Data {
    /// Adds a token.
    pub(crate) fn add_token(&mut self, new: &NewToken) -> Result<Token> {
        let name = new.name.as_str();
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let message = format!("token name {name:?} is not 1 to {MAX_NAME} bytes of printable text");
            return Err(ErrorObject::client(ErrorCode::IllegalParams, message));
        }
        if new.tubes.is_empty() || new.tubes.iter().any(String::is_empty) {
            let message = "a token needs tubes: names, 'mail-*' for all that begin so, or '*' for every tube";
            return Err(ErrorObject::client(ErrorCode::IllegalParams, message));
        }
        if find(self.store(), BY_NAME, &name.into()).is_some() {
            let message = format!("token '{name}' exists: revoke it first, or choose another name");
            let error = ErrorObject::client(ErrorCode::TupleFound, message);
            return Err(error.with_name("TOKEN_EXISTS"));
        }
        let now = self.now;
        let token = Token {
            id: TokenId(new.number),
            name: new.name.clone(),
            role: new.role,
            tubes: new.tubes.clone(),
            created: now,
            expires: new.ttl.map(|ttl| now.saturating_add(ttl)),
        };
        let row = Value::Array(vec![
            token.id.0.into(),
            name.into(),
            new.digest.0.as_str().into(),
            token.role.name().into(),
            Value::array(token.tubes.iter().map(String::as_str)),
            token.created.into(),
            token.expires.unwrap_or_default().into(),
        ])
        .encode();
        // A full server is drained over HTTP, too, and that takes a token.
        self.transaction(Growth::Finishes, user::ADMIN, |store| {
            let insert = |store: &mut Store| -> lycosa_queue::Result<()> {
                let space = TOKENS.find_or_create(store, false)?;
                Ok(store.execute(&Statement::Insert { space, tuple: &row }).map(drop)?)
            };
            let former = store.lift_limit(true);
            let inserted = insert(store);
            store.lift_limit(former);
            inserted.on_wire()
        })?;
        Ok(token)
    }

    /// Removes a token.
    pub(crate) fn revoke_token(&mut self, name: &str) -> Result<()> {
        let missing = || {
            let message = format!("token '{name}' does not exist: `lycosa token list` shows all of them");
            ErrorObject::client(ErrorCode::IllegalParams, message).with_name("NO_SUCH_TOKEN")
        };
        let found = space(self.store()).zip(find(self.store(), BY_NAME, &name.into()));
        let (space, token) = found.ok_or_else(missing)?;
        let key = Value::array([token.id.0]).encode();
        self.transaction(Growth::Shrinks, user::ADMIN, |store| {
            let statement = Statement::Delete { space, index: BY_ID, key: &key };
            store.execute(&statement).map(drop).on_wire()
        })
    }
}
