//! Who is known: each replica's place in the log, and what follows for replies and for files.

use std::collections::BTreeMap;

use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

/// A replica as the master knows it. Times are microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The replica.
    pub uuid: Uuid,
    /// Its number in `_cluster`, 0 if it is anonymous.
    pub id: u32,
    /// What it has on its disk; None as long as it has not said so since this process began.
    pub acknowledged: Option<Vclock>,
    /// Whether a relay serves it now.
    pub is_connected: bool,
    /// When it was heard last, 0 for never.
    pub heard_at: u64,
    /// Whether it has to join again: journals that it needs were removed.
    pub is_lost: bool,
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
            is_connected: false,
            heard_at: 0,
            is_lost: false,
        });
    }

    /// A replica left `_cluster`; its journals are not kept any more.
    pub fn unregister(&mut self, uuid: Uuid) {
        self.peers.remove(&uuid);
    }

    /// Brings the replicas in line with `_cluster`: `rows` are its rows but for the instance's own.
    pub fn follow_cluster(&mut self, rows: &[(u32, Uuid)]) {
        self.peers.retain(|uuid, peer| peer.id == 0 || rows.iter().any(|(_, known)| known == uuid));
        rows.iter().for_each(|&(id, uuid)| self.register(uuid, id));
    }

    /// A replica has subscribed, or joins, from `vclock` on. `id` 0: it is anonymous.
    pub fn connected(&mut self, uuid: Uuid, id: u32, vclock: &Vclock, now: u64) {
        self.register(uuid, id);
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.acknowledged = Some(vclock.replicated());
            peer.is_connected = true;
            peer.heard_at = now;
            peer.is_lost = false;
        }
    }

    /// A replica has made rows durable.
    pub fn acknowledged(&mut self, uuid: Uuid, vclock: &Vclock, now: u64) {
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.acknowledged = Some(vclock.clone());
            peer.heard_at = now;
        }
    }

    /// A relay has ended. Nobody waits for an anonymous replica.
    pub fn disconnected(&mut self, uuid: Uuid) {
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.is_connected = false;
            if peer.id == 0 {
                self.peers.remove(&uuid);
            }
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

    /// The LSN of `own` up to which at least `count` replicas have this instance's rows on their disks; `u64::MAX` if
    /// none are asked for, 0 if there are too few replicas.
    #[must_use]
    pub fn durable_on(&self, count: usize, own: u32) -> u64 {
        let Some(last) = count.checked_sub(1) else { return u64::MAX };
        let mut lsns: Vec<u64> = self
            .peers
            .values()
            .filter(|peer| peer.id != 0)
            .filter_map(|peer| peer.acknowledged.as_ref())
            .map(|vclock| vclock.get(own))
            .collect();
        lsns.sort_unstable_by(|a, b| b.cmp(a));
        lsns.get(last).copied().unwrap_or(0)
    }

    /// How many registered replicas are connected.
    #[must_use]
    pub fn connected_count(&self) -> usize {
        self.peers.values().filter(|peer| peer.id != 0 && peer.is_connected).count()
    }

    /// The places that journals are to be kept from: of every replica that is not lost, with the replica. None as a
    /// place: nobody knows, so everything is kept.
    pub fn needs(&self) -> impl Iterator<Item = (Uuid, Option<&Vclock>)> {
        let kept = self.peers.values().filter(|peer| !peer.is_lost && (peer.id != 0 || peer.is_connected));
        kept.map(|peer| (peer.uuid, peer.acknowledged.as_ref()))
    }

    /// Journals that a replica needs were removed: it has to join again.
    pub fn lose(&mut self, uuid: Uuid) {
        if let Some(peer) = self.peers.get_mut(&uuid) {
            peer.is_lost = true;
        }
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
        assert_eq!((replicas.durable_on(0, 1), replicas.durable_on(1, 1)), (u64::MAX, 0));
        for (number, lsn) in [(2, 10), (3, 30), (4, 20)] {
            replicas.connected(uuid(number), number as u32, &clock(lsn), 5);
        }
        replicas.connected(uuid(9), 0, &clock(99), 5);
        assert_eq!([1, 2, 3, 4].map(|count| replicas.durable_on(count, 1)), [30, 20, 10, 0]);
        replicas.acknowledged(uuid(2), &clock(40), 6);
        assert_eq!(replicas.durable_on(1, 1), 40);
        replicas.disconnected(uuid(2));
        assert_eq!((replicas.durable_on(1, 1), replicas.connected_count()), (40, 2));
    }

    #[test]
    fn journals_are_kept_for_registered_replicas_and_connected_guests() {
        let mut replicas = Replicas::default();
        replicas.follow_cluster(&[(2, uuid(2)), (3, uuid(3))]);
        replicas.connected(uuid(2), 2, &clock(10), 5);
        replicas.connected(uuid(9), 0, &clock(4), 5);
        let needs: Vec<_> = replicas.needs().map(|(uuid, vclock)| (uuid, vclock.map(|v| v.get(1)))).collect();
        assert_eq!(needs, [(uuid(2), Some(10)), (uuid(3), None), (uuid(9), Some(4))]);
        replicas.disconnected(uuid(9));
        replicas.disconnected(uuid(2));
        replicas.lose(uuid(3));
        let needs: Vec<_> = replicas.needs().map(|(uuid, _)| uuid).collect();
        assert_eq!(needs, [uuid(2)]);
        replicas.follow_cluster(&[(3, uuid(3))]);
        assert!(replicas.get(&uuid(2)).is_none() && replicas.get(&uuid(3)).is_some());
    }
}
