//! Requests of replicas, checked as far as that is possible without data.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::request::Subscribe;
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_tuple::mp::Reader;
use uuid::Uuid;

use crate::lineage::Lineage;
use crate::stream::uuid;

/// Instances whose rows a replica does not want, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdFilter(u32);

impl IdFilter {
    /// Adds an instance. An id that no instance can have is left out.
    #[must_use]
    pub fn with(self, replica_id: u32) -> Self {
        Self(self.0 | 1_u32.checked_shl(replica_id).unwrap_or(0))
    }

    /// Whether rows of the instance are not wanted.
    #[inline]
    #[must_use]
    pub fn excludes(self, replica_id: u32) -> bool {
        1_u32.checked_shl(replica_id).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Whether rows of any of the instances, given as bits, are not wanted.
    #[inline]
    pub(crate) fn excludes_any(self, origins: u32) -> bool {
        self.0 & origins != 0
    }
}

/// Why a request of a replica cannot be served: the answer to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct RequestError(pub ErrorObject);

fn missing(field: &str) -> RequestError {
    let message = format!("Missing mandatory field '{field}' in request");
    RequestError(ErrorObject::client(ErrorCode::MissingRequestField, message))
}

fn invalid(what: &str) -> RequestError {
    RequestError(ErrorObject::client(ErrorCode::InvalidMsgpack, format!("Invalid MsgPack - {what}")))
}

fn instance(text: Option<&[u8]>) -> Result<Uuid, RequestError> {
    let text = text.ok_or_else(|| missing("instance uuid"))?;
    uuid(text).filter(|uuid| !uuid.is_nil()).ok_or_else(|| invalid("UUID"))
}

fn clock(map: Option<&[u8]>) -> Result<Vclock, RequestError> {
    let map = map.ok_or_else(|| missing("vclock"))?;
    Vclock::decode(&mut Reader::new(map)).map_err(|_| invalid("VCLOCK"))
}

/// A JOIN, or a REGISTER with where the replica is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRequest {
    /// The replica.
    pub replica: Uuid,
}

impl JoinRequest {
    /// Checks a JOIN.
    ///
    /// # Errors
    /// The instance's UUID is missing or none.
    pub fn new(instance_uuid: Option<&[u8]>) -> Result<Self, RequestError> {
        Ok(Self { replica: instance(instance_uuid)? })
    }

    /// Checks a REGISTER; also where the replica is.
    ///
    /// # Errors
    /// A field is missing or malformed.
    pub fn register(
        instance_uuid: Option<&[u8]>,
        vclock: Option<&[u8]>,
    ) -> Result<(Self, Vclock), RequestError> {
        Ok((Self::new(instance_uuid)?, clock(vclock)?))
    }
}

/// A SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscribeRequest {
    /// The replica.
    pub replica: Uuid,
    /// The replica set that it believes to be in, if it says so.
    pub cluster: Option<Uuid>,
    /// The replica's progress.
    pub vclock: Vclock,
    /// Whether it has no id and is not to get one.
    pub is_anonymous: bool,
    /// What it does not want.
    pub filter: IdFilter,
    /// The epochs and the term that it knows; `None` if it knows of no such thing.
    pub lineage: Option<Lineage>,
}

impl SubscribeRequest {
    /// Checks a SUBSCRIBE.
    ///
    /// # Errors
    /// A field is missing or malformed.
    pub fn new(subscribe: &Subscribe<'_>) -> Result<Self, RequestError> {
        let mut filter = IdFilter::default();
        if let Some(ids) = subscribe.id_filter {
            let mut reader = Reader::new(ids);
            for _ in 0..reader.array().map_err(|_| invalid("ID_FILTER"))? {
                let id = reader.uint().ok().filter(|&id| id < VCLOCK_MAX as u64);
                filter = filter.with(id.ok_or_else(|| invalid("ID_FILTER"))? as u32);
            }
        }
        let lineage = subscribe.lineage.map(|bytes| Lineage::decode(&mut Reader::new(bytes)));
        let lineage = lineage.transpose().map_err(|_| invalid("LINEAGE"))?;
        let cluster = match subscribe.cluster_uuid {
            Some(text) => Some(uuid(text).ok_or_else(|| invalid("UUID"))?),
            None => None,
        };
        Ok(Self {
            replica: instance(subscribe.instance_uuid)?,
            cluster,
            vclock: clock(subscribe.vclock)?,
            is_anonymous: subscribe.is_anonymous,
            filter,
            lineage,
        })
    }

    /// Refuses a replica of another replica set.
    ///
    /// # Errors
    /// [`ErrorCode::ReplicasetUuidMismatch`].
    pub fn check_cluster(&self, own: Uuid) -> Result<(), RequestError> {
        match self.cluster {
            Some(theirs) if theirs != own => {
                let message = format!("Replica set UUID mismatch: expected {own}, got {theirs}");
                Err(RequestError(ErrorObject::client(ErrorCode::ReplicasetUuidMismatch, message)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::request::{self, Body};

    use super::*;
    use crate::stream::PREFIX;
    use crate::transcript::Transcript;

    #[test]
    fn recorded_requests_are_read() {
        let transcript = Transcript::read("20-replication-join.json");
        let frame = &transcript.of_replica("SUBSCRIBE").expect("recorded")[PREFIX..];
        let Ok(Body::Subscribe(subscribe)) = request::decode(frame).map(|request| request.body) else {
            panic!("no SUBSCRIBE")
        };
        let wanted = SubscribeRequest::new(&subscribe).expect("a request");
        assert_eq!(wanted.replica.to_string(), "903c193a-566d-49be-bd4b-f6416a074827");
        assert_eq!(wanted.vclock.to_string(), "{1: 25}");
        assert!(!wanted.is_anonymous && wanted.filter.excludes(2) && !wanted.filter.excludes(1));
        assert_eq!(wanted.check_cluster(wanted.cluster.expect("given")), Ok(()));
        let refused = wanted.check_cluster(Uuid::from_u128(5)).expect_err("another replica set");
        assert_eq!(refused.0.code, u32::from(ErrorCode::ReplicasetUuidMismatch));

        let anonymous = Transcript::read("22-replication-anonymous.json");
        let frame = &anonymous.of_replica("SUBSCRIBE").expect("recorded")[PREFIX..];
        let Ok(Body::Subscribe(subscribe)) = request::decode(frame).map(|request| request.body) else {
            panic!("no SUBSCRIBE")
        };
        let wanted = SubscribeRequest::new(&subscribe).expect("a request");
        assert!(wanted.is_anonymous && wanted.filter.excludes(0));
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = |error: RequestError| error.0.message;
        let empty = Subscribe::default();
        let missing = SubscribeRequest::new(&empty).expect_err("nothing given");
        assert_eq!(text(missing), "Missing mandatory field 'instance uuid' in request");
        assert_eq!(text(JoinRequest::new(Some(b"x")).expect_err("no UUID")), "Invalid MsgPack - UUID");
        let nil = Uuid::nil().to_string();
        assert!(JoinRequest::new(Some(nil.as_bytes())).is_err());
        let id = Uuid::from_u128(1).to_string();
        let without = Subscribe { instance_uuid: Some(id.as_bytes()), ..empty };
        let missing = SubscribeRequest::new(&without).expect_err("no vclock");
        assert_eq!(text(missing), "Missing mandatory field 'vclock' in request");
        let odd = Subscribe { vclock: Some(&[0x80]), id_filter: Some(&[0x91, 32]), ..without };
        assert_eq!(text(SubscribeRequest::new(&odd).expect_err("no id")), "Invalid MsgPack - ID_FILTER");
    }
}
