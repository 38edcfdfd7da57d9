//! Which session of the model is which session of the instance, and which lease has which token.

use std::collections::BTreeMap;

use lycosa_queue::SessionId;

use crate::model::{LeaseKey, SessionKey};
use crate::violation::{Checked, hold};

/// A one-to-one relation that only grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    ids: BTreeMap<SessionKey, SessionId>,
    keys: BTreeMap<SessionId, SessionKey>,
    tokens: BTreeMap<LeaseKey, String>,
    leases: BTreeMap<String, LeaseKey>,
}

impl Names {
    pub(crate) fn key(&self, id: &SessionId) -> Option<SessionKey> {
        self.keys.get(id).copied()
    }

    pub(crate) fn id(&self, key: SessionKey) -> Option<&SessionId> {
        self.ids.get(&key)
    }

    /// All ids that sessions ever had, oldest first.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.ids.values().copied().collect()
    }

    /// The lease that has, or had, a token.
    pub(crate) fn lease(&self, token: &str) -> Option<LeaseKey> {
        self.leases.get(token).copied()
    }

    pub(crate) fn token(&self, key: LeaseKey) -> Option<&str> {
        self.tokens.get(&key).map(String::as_str)
    }

    /// All tokens that leases ever had, oldest first.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.values().cloned().collect()
    }

    /// A lease has the key `key` in the model and `token` in the instance.
    pub(crate) fn learn_token(&mut self, key: LeaseKey, token: &str) -> Checked {
        let known = self.tokens.entry(key).or_insert_with(|| token.to_owned());
        let owner = *self.leases.entry(token.to_owned()).or_insert(key);
        hold!(
            known == token && owner == key,
            "lease {key:?} has the token {known} and {token}, of {owner:?}"
        );
        Ok(())
    }

    /// A connection has the session `key` in the model and `id` in the instance.
    pub(crate) fn learn(&mut self, connection: u64, key: SessionKey, id: SessionId) -> Checked {
        let known = (*self.ids.entry(key).or_insert(id), *self.keys.entry(id).or_insert(key));
        hold!(known == (id, key), "connection {connection} has another session than it ought to have");
        Ok(())
    }
}
