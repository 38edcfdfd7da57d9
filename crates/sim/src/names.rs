//! Names: sessions of the model by sessions of the instance, and tokens by leases.

use std::collections::BTreeMap;
use std::fmt;

use lycosa_queue::SessionId;

use crate::model::{LeaseKey, SessionKey};
use crate::violation::{Checked, hold};

/// The token of a lease, by its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseToken {
    pub(crate) tube: u64,
    pub(crate) task: u64,
    pub(crate) epoch: u64,
    pub(crate) secret: u64,
}

impl LeaseToken {
    /// Reads what [`Self::fmt`] writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut number = || parts.next()?.parse().ok();
        let (tube, task, epoch) = (number()?, number()?, number()?);
        let secret = u64::from_str_radix(parts.next()?, 16).ok()?;
        Some(Self { tube, task, epoch, secret })
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tube, task, epoch, secret } = self;
        write!(f, "{tube}-{task}-{epoch}-{secret:016x}")
    }
}

/// Sorted by key, and for each key what it stands for.
type Learned<K, V> = Vec<(K, V)>;

/// What a key stands for, which is `value` if nothing was known of it.
fn learned<K: Ord, V: Copy>(all: &mut Learned<K, V>, key: K, value: V) -> V {
    match all.binary_search_by(|(known, _)| known.cmp(&key)) {
        Ok(place) => all[place].1,
        Err(place) => {
            all.insert(place, (key, value));
            value
        }
    }
}

/// A one-to-one relation that only grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    ids: Learned<SessionKey, SessionId>,
    keys: BTreeMap<SessionId, SessionKey>,
    tokens: Learned<LeaseKey, LeaseToken>,
    leases: BTreeMap<String, LeaseKey>,
}

impl Names {
    pub(crate) fn key(&self, id: &SessionId) -> Option<SessionKey> {
        self.keys.get(id).copied()
    }

    pub(crate) fn id(&self, key: SessionKey) -> Option<&SessionId> {
        let place = self.ids.binary_search_by_key(&key, |(known, _)| *known).ok()?;
        Some(&self.ids[place].1)
    }

    /// All ids that sessions ever had, oldest first.
    pub(crate) fn ids(&self) -> &[(SessionKey, SessionId)] {
        &self.ids
    }

    /// The lease that has, or had, a token.
    pub(crate) fn lease(&self, token: &str) -> Option<LeaseKey> {
        self.leases.get(token).copied()
    }

    pub(crate) fn token(&self, key: LeaseKey) -> Option<LeaseToken> {
        let place = self.tokens.binary_search_by_key(&key, |(known, _)| *known).ok()?;
        Some(self.tokens[place].1)
    }

    /// All tokens that leases ever had, oldest first.
    pub(crate) fn tokens(&self) -> &[(LeaseKey, LeaseToken)] {
        &self.tokens
    }

    /// A lease has the key `key` in the model and `token` in the instance.
    pub(crate) fn learn_token(&mut self, key: LeaseKey, token: LeaseToken) -> Checked {
        let count = self.tokens.len();
        let known = learned(&mut self.tokens, key, token);
        let is_new = self.tokens.len() > count;
        let owner = if is_new { *self.leases.entry(token.to_string()).or_insert(key) } else { key };
        hold!(
            known == token && owner == key,
            "lease {key:?} has the token {known} and {token}, of {owner:?}"
        );
        Ok(())
    }

    /// A connection has the session `key` in the model and `id` in the instance.
    pub(crate) fn learn(&mut self, connection: u64, key: SessionKey, id: SessionId) -> Checked {
        let known = (learned(&mut self.ids, key, id), *self.keys.entry(id).or_insert(key));
        hold!(known == (id, key), "connection {connection} has another session than it ought to have");
        Ok(())
    }
}
