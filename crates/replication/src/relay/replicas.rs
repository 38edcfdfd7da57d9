//! The known replicas: the place of each in the log, and its effect on replies and files.

use std::collections::BTreeMap;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use super::request::RequestError;

/// A replica as the master knows it. Times are microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The replica.
    pub uuid: Uuid,
    /// Its number in `_cluster`, 0 if it is anonymous.
    pub id: u32,
    /// What it has on its disk; None as long as it has not said so since this process began.
    pub acknowledged: Option<Vclock>,
    /// Connections on which it joins.
    joins: u32,
    /// Whether a connection follows the log. There is one at most: what two replicas with one UUID acknowledge would count
    /// for both.
    is_subscribed: bool,
    /// When it was heard last, 0 for never.
    pub heard_at: u64,
    /// Whether it has to join again: journals that it needs were removed.
    pub is_lost: bool,
}

impl Peer {
    /// Whether it is served now: it joins or follows.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.joins > 0 || self.is_subscribed()
    }

    /// Whether it follows the log now.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        self.is_subscribed
    }
}

/// All replicas of an instance.
#[derive(Debug, Clone, Default)]
pub struct Replicas {
    peers: BTreeMap<Uuid, Peer>,
}

impl Replicas {
    /// A row of `_cluster` names a replica.
    pub fn register(&mut self, uuid: Uuid, id: u32) {
        self.peers.entry(uuid).and_modify(|peer| peer.id = id).or_insert(Peer {
            uuid,
            id,
            acknowledged: None,
            joins: 0,
            is_subscribed: false,
            heard_at: 0,
            is_lost: false,
        });
    }

    /// A replica left `_cluster`; its journals are not kept any more.
    pub fn unregister(&mut self, uuid: Uuid) {
        self.peers.remove(&uuid);
    }

    /// Brings the replicas in line with `_cluster`: `rows` are its rows but for the instance's own.
    pub fn sync_with_cluster(&mut self, rows: &[(u32, Uuid)]) {
        self.peers.retain(|uuid, peer| peer.id == 0 || rows.iter().any(|(_, known)| known == uuid));
        rows.iter().for_each(|&(id, uuid)| self.register(uuid, id));
    }

    /// A replica begins to join: it is not known yet which journals it will need, so all are kept for it. To be followed by
    /// [`Self::joined`].
    pub fn joining(&mut self, uuid: Uuid, now: u64) {
        self.reached(uuid, 0, &Vclock::new(), now);
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.acknowledged = None;
            peer.joins += 1;
        }
    }

    /// A connection on which a replica joins has ended.
    pub fn joined(&mut self, uuid: Uuid) {
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.joins = peer.joins.saturating_sub(1);
        }
        self.forget_guest(uuid);
    }

    /// A replica subscribes from `vclock` on. `id` as for [`Self::reached`]. To be followed by [`Self::unsubscribed`].
    ///
    /// # Errors
    /// It follows on another connection: it is a copy of another replica, or its last connection is not known to be dead
    /// yet.
    pub fn subscribed(&mut self, uuid: Uuid, id: u32, vclock: &Vclock, now: u64) -> Result<(), RequestError> {
        if self.get(&uuid).is_some_and(Peer::is_subscribed) {
            let message =
                "Incorrect value for option 'replication': duplicate connection with the same replica UUID";
            return Err(RequestError(ErrorObject::client(ErrorCode::Cfg, message)));
        }
        self.reached(uuid, id, vclock, now);
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.is_subscribed = true;
        }
        Ok(())
    }

    /// The relay has ended.
    pub fn unsubscribed(&mut self, uuid: Uuid) {
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.is_subscribed = false;
        }
        self.forget_guest(uuid);
    }

    /// A replica has everything up to `vclock`. `id` 0: it is anonymous, or has the number that is known.
    pub fn reached(&mut self, uuid: Uuid, id: u32, vclock: &Vclock, now: u64) {
        let known = self.peers.get(&uuid).map_or(0, |peer| peer.id);
        self.register(uuid, if id == 0 { known } else { id });
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.acknowledged = Some(vclock.replicated());
            peer.heard_at = now;
            peer.is_lost = false;
        }
    }

    /// No reply waits for an anonymous replica that has left.
    fn forget_guest(&mut self, uuid: Uuid) {
        if self.peers.get(&uuid).is_some_and(|peer| peer.id == 0 && !peer.is_connected()) {
            self.peers.remove(&uuid);
        }
    }

    /// A replica has made rows durable.
    pub fn acknowledged(&mut self, uuid: Uuid, vclock: &Vclock, now: u64) {
        if let Some(peer) = self.peers.get_mut(&uuid) {
            // One that goes on from memory, or from a file that is still open, needs no join.
            peer.is_lost &= peer.acknowledged.as_ref() == Some(vclock);
            peer.acknowledged = Some(vclock.clone());
            peer.heard_at = now;
        }
    }

    /// All of them, by UUID.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, uuid: &Uuid) -> Option<&Peer> {
        self.peers.get(uuid)
    }

    /// How many registered replicas have everything up to `vclock` on their disks.
    #[must_use]
    pub fn count_with(&self, vclock: &Vclock) -> usize {
        let has = |known: &Vclock| vclock.iter().all(|(id, lsn)| id == 0 || lsn <= known.get(id));
        let peers = self.peers.values().filter(|peer| peer.id != 0);
        peers.filter(|peer| peer.acknowledged.as_ref().is_some_and(has)).count()
    }

    /// How many registered replicas follow the log.
    #[must_use]
    pub fn following_count(&self) -> usize {
        self.peers.values().filter(|peer| peer.id != 0 && peer.is_subscribed()).count()
    }

    /// The places that journals are to be kept from: of every replica that is not lost, with the replica. None as a
    /// place: unknown, so everything is kept.
    pub fn needs(&self) -> impl Iterator<Item = (Uuid, Option<&Vclock>)> {
        let kept = self.peers.values().filter(|peer| !peer.is_lost && (peer.id != 0 || peer.is_connected()));
        kept.map(|peer| (peer.uuid, peer.acknowledged.as_ref()))
    }

    /// The replica that is furthest behind of those for which journals are kept: all others need less.
    #[must_use]
    pub fn furthest_behind(&self) -> Option<&Peer> {
        let kept = self.peers.values().filter(|peer| !peer.is_lost && (peer.id != 0 || peer.is_connected()));
        kept.min_by_key(|peer| peer.acknowledged.as_ref().map_or(0, Vclock::signature))
    }

    /// Journals that a replica needs were removed: it has to join again. Whether that is news.
    pub fn lose(&mut self, uuid: Uuid) -> bool {
        self.peers.get_mut(&uuid).is_some_and(|peer| !std::mem::replace(&mut peer.is_lost, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(lsn: u64) -> Vclock {
        let mut clock = Vclock::new();
        clock.set(1, lsn).expect("an id below 32");
        clock
    }

    fn uuid(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[test]
    fn durability_counts_replicas() {
        let mut replicas = Replicas::default();
        assert_eq!(replicas.count_with(&clock(0)), 0);
        for (number, lsn) in [(2, 10), (3, 30), (4, 20)] {
            replicas.subscribed(uuid(number), number as u32, &clock(lsn), 5).expect("it has no connection");
        }
        replicas.subscribed(uuid(9), 0, &clock(99), 5).expect("it has no connection");
        assert_eq!([10, 11, 25, 31].map(|lsn| replicas.count_with(&clock(lsn))), [3, 2, 1, 0]);
        replicas.acknowledged(uuid(2), &clock(40), 6);
        assert_eq!(replicas.count_with(&clock(40)), 1);
        let second = replicas.subscribed(uuid(2), 2, &clock(99), 6).expect_err("it follows already");
        assert!(second.0.message.ends_with("duplicate connection with the same replica UUID"));
        assert_eq!((replicas.count_with(&clock(41)), replicas.following_count()), (0, 3));
        replicas.unsubscribed(uuid(2));
        assert_eq!((replicas.count_with(&clock(40)), replicas.following_count()), (1, 2));
        replicas.joining(uuid(2), 7);
        assert_eq!(replicas.following_count(), 2, "one that joins confirms nothing yet");
    }

    #[test]
    fn journals_are_kept_for_registered_replicas_and_connected_guests() {
        let mut replicas = Replicas::default();
        replicas.sync_with_cluster(&[(2, uuid(2)), (3, uuid(3))]);
        replicas.subscribed(uuid(2), 2, &clock(10), 5).expect("it has no connection");
        replicas.subscribed(uuid(9), 0, &clock(4), 5).expect("it has no connection");
        let needs: Vec<_> = replicas.needs().map(|(uuid, vclock)| (uuid, vclock.map(|v| v.get(1)))).collect();
        assert_eq!(needs, [(uuid(2), Some(10)), (uuid(3), None), (uuid(9), Some(4))]);
        replicas.unsubscribed(uuid(9));
        replicas.unsubscribed(uuid(2));
        replicas.lose(uuid(3));
        let needs: Vec<_> = replicas.needs().map(|(uuid, _)| uuid).collect();
        assert_eq!(needs, [uuid(2)]);
        assert_eq!(replicas.furthest_behind().map(|peer| peer.uuid), Some(uuid(2)));
        replicas.acknowledged(uuid(3), &clock(5), 6);
        assert!(!replicas.get(&uuid(3)).expect("registered").is_lost, "it goes on");
        replicas.joining(uuid(2), 7);
        let joining = replicas.get(&uuid(2)).expect("registered");
        assert_eq!((joining.id, joining.acknowledged.as_ref()), (2, None));
        replicas.sync_with_cluster(&[(3, uuid(3))]);
        assert!(replicas.get(&uuid(2)).is_none() && replicas.get(&uuid(3)).is_some());
    }
}
