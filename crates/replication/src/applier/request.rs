//! Requests of a replica, byte for byte as Tarantool sends them.

use lycosa_iproto::auth::{self, METHOD};
use lycosa_iproto::greeting::SALT_SIZE;
use lycosa_iproto::keys::{self, RequestType};
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::mp;
use uuid::Uuid;

use crate::lineage::{Confirmation, Lineage};
use crate::stream::{self, frame};

fn request(out: &mut Vec<u8>, kind: RequestType, body: impl FnOnce(&mut Vec<u8>)) {
    frame(out, |out| {
        out.extend_from_slice(&[0x81, keys::REQUEST_TYPE, kind as u8]);
        body(out);
    });
}

fn text(out: &mut Vec<u8>, key: u8, text: &str) {
    out.push(key);
    mp::write_str(out, text.as_bytes());
}

pub(super) fn vote(out: &mut Vec<u8>) {
    request(out, RequestType::Vote, |_| {});
}

pub(super) fn authenticate(out: &mut Vec<u8>, user: &str, password: &str, salt: &[u8; SALT_SIZE]) {
    request(out, RequestType::Auth, |out| {
        mp::write_map(out, 2);
        text(out, keys::USER_NAME, user);
        out.push(keys::TUPLE);
        mp::write_array(out, 2);
        mp::write_str(out, METHOD.as_bytes());
        mp::write_str(out, &auth::scramble(password.as_bytes(), salt));
    });
}

pub(super) fn join(out: &mut Vec<u8>, instance: Uuid) {
    request(out, RequestType::Join, |out| {
        mp::write_map(out, 1);
        text(out, keys::INSTANCE_UUID, &instance.to_string());
    });
}

pub(super) fn fetch_snapshot(out: &mut Vec<u8>) {
    request(out, RequestType::FetchSnapshot, |_| {});
}

pub(super) fn register(out: &mut Vec<u8>, instance: Uuid, vclock: &Vclock) {
    request(out, RequestType::Register, |out| {
        mp::write_map(out, 2);
        text(out, keys::INSTANCE_UUID, &instance.to_string());
        out.push(keys::VCLOCK);
        vclock.encode(out);
    });
}

/// What a SUBSCRIBE asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The replica set, as far as it is known.
    pub cluster: Uuid,
    /// This instance.
    pub instance: Uuid,
    /// What it has.
    pub vclock: Vclock,
    /// Version of this program, packed.
    pub version: u32,
    /// Whether it has no number and is not to get one.
    pub is_anonymous: bool,
    /// Instances whose rows it does not want; right after a JOIN its own number.
    pub filter: Vec<u32>,
    /// The epochs and the term that it knows, if it tells.
    pub lineage: Option<Lineage>,
}

impl Subscription {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        request(out, RequestType::Subscribe, |out| {
            let further = u32::from(!self.filter.is_empty()) + u32::from(self.lineage.is_some());
            mp::write_map(out, 5 + further);
            text(out, keys::CLUSTER_UUID, &self.cluster.to_string());
            text(out, keys::INSTANCE_UUID, &self.instance.to_string());
            out.push(keys::VCLOCK);
            self.vclock.replicated().encode(out);
            out.push(keys::SERVER_VERSION);
            mp::write_uint(out, self.version.into());
            out.push(keys::REPLICA_ANON);
            mp::write_bool(out, self.is_anonymous);
            if !self.filter.is_empty() {
                out.push(keys::ID_FILTER);
                mp::write_array(out, self.filter.len() as u32);
                self.filter.iter().for_each(|&id| mp::write_uint(out, id.into()));
            }
            if let Some(lineage) = &self.lineage {
                out.push(keys::LINEAGE);
                lineage.encode(out);
            }
        });
    }
}

/// Appends an ACK: this instance has everything up to `vclock` on its disk, of the history that `confirmation` names.
pub fn acknowledge(out: &mut Vec<u8>, vclock: &Vclock, confirmation: &Confirmation) {
    stream::acknowledgement(out, &vclock.replicated(), confirmation);
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::greeting::Greeting;

    use super::*;
    use crate::transcript::Transcript;

    fn clock(lsn: u64) -> Vclock {
        let mut clock = Vclock::new();
        clock.set(1, lsn).expect("an id below 32");
        clock
    }

    #[test]
    fn requests_are_those_of_the_transcripts() {
        let sent = |transcript: &Transcript, note: &str| transcript.of_replica(note).expect(note).to_vec();
        let written = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            out
        };
        let first = Transcript::read("20-replication-join.json");
        let instance = Uuid::parse_str("903c193a-566d-49be-bd4b-f6416a074827").expect("a UUID");
        let cluster = Uuid::parse_str("f41503bb-357c-40a6-9cbd-13ed9c154af9").expect("a UUID");
        assert_eq!(written(&vote), sent(&first, "VOTE"));
        assert_eq!(written(&|out| join(out, instance)), sent(&first, "JOIN"));
        let greeting = first.of_master("greeting").expect("recorded").try_into().expect("128 bytes");
        let salt = Greeting::decode(greeting).expect("a greeting").salt;
        assert_eq!(written(&|out| authenticate(out, "repl", "repl-secret", &salt)), sent(&first, "AUTH"));
        let mut subscription = Subscription {
            cluster,
            instance,
            vclock: clock(25),
            version: 132_608,
            is_anonymous: false,
            filter: vec![2],
            lineage: None,
        };
        assert_eq!(written(&|out| subscription.encode(out)), sent(&first, "SUBSCRIBE"));
        assert_eq!(
            written(&|out| acknowledge(out, &clock(25), &Confirmation::default())),
            sent(&first, "ACK: the replica's vclock")
        );

        let again = Transcript::read("21-replication-resubscribe.json");
        subscription.vclock = clock(39);
        subscription.filter.clear();
        assert_eq!(written(&|out| subscription.encode(out)), sent(&again, "SUBSCRIBE"));

        let anonymous = Transcript::read("22-replication-anonymous.json");
        assert_eq!(written(&fetch_snapshot), sent(&anonymous, "FETCH_SNAPSHOT"));
        subscription.instance = Uuid::parse_str("c676ee07-d884-43b7-a6b0-29a23bc47ad3").expect("a UUID");
        subscription.vclock = clock(42);
        subscription.is_anonymous = true;
        subscription.filter = vec![0];
        assert_eq!(written(&|out| subscription.encode(out)), sent(&anonymous, "SUBSCRIBE"));
    }
}
