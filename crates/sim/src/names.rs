//! Which session of the model is which session of the instance.

use std::collections::BTreeMap;

use lycosa_queue::SessionId;

use crate::model::SessionKey;
use crate::violation::{Checked, hold};

/// A one-to-one relation that only grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    ids: BTreeMap<SessionKey, SessionId>,
    keys: BTreeMap<SessionId, SessionKey>,
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

    /// A connection has the session `key` in the model and `id` in the instance.
    pub(crate) fn learn(&mut self, connection: u64, key: SessionKey, id: SessionId) -> Checked {
        let known = (*self.ids.entry(key).or_insert(id), *self.keys.entry(id).or_insert(key));
        hold!(known == (id, key), "connection {connection} has another session than it ought to have");
        Ok(())
    }
}
