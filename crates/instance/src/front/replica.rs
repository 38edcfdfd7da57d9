//! Requests of replicas.
//!
//! A connection that asks for replication leaves the ordinary way of requests: its request is checked here and handed out
//! ([`Instance::take_replica`]), and until [`Instance::finish_replica`] nothing more is read from it as a request.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::request::Body;
use lycosa_replication::relay::{JoinRequest, SubscribeRequest};
use lycosa_store::{Access, Object, UserId, system};
use uuid::Uuid;

use crate::front::replica_request::ReplicaRequest;
use crate::shard::Shard;
use crate::shard::admission::Need;
use crate::shard::wire_error::OnWire;
use crate::{ConnectionSlot, Instance, Result};

impl Instance {
    /// Checks a replica's request and hands it out.
    pub(crate) fn take_replica_request(&mut self, slot: ConnectionSlot, body: &Body<'_>) -> Result<()> {
        let Some(connection) = self.front.connections.get(slot) else { return Ok(()) };
        let request = check_replica_request(&self.shard, connection.user, body).and_then(|request| {
            if let ReplicaRequest::Subscribe(request, id) = &request {
                self.settle(|instance| instance.shard.check_subscription(request, *id))?;
            }
            Ok(request)
        });
        let Some(connection) = self.front.connections.get_mut(slot) else { return request.map(drop) };
        // As Tarantool: the stream cannot be asked for twice.
        connection.broken |= request.is_err() && matches!(body, Body::Subscribe(_));
        connection.replica_request = Some(Box::new(request?));
        connection.is_replica = true;
        Ok(())
    }

    /// Takes the request of the replica at the other end of a connection.
    pub fn take_replica(&mut self, slot: ConnectionSlot) -> Option<ReplicaRequest> {
        self.front.connections.get_mut(slot)?.replica_request.take().map(|request| *request)
    }

    /// Whether the connection is a replica's and its bytes are not requests.
    pub fn is_replica(&self, slot: ConnectionSlot) -> bool {
        self.front.connections.get(slot).is_some_and(|connection| connection.is_replica)
    }

    /// The replica has what it asked for: its next bytes are requests again.
    pub fn finish_replica(&mut self, slot: ConnectionSlot) {
        if let Some(connection) = self.front.connections.get_mut(slot) {
            connection.is_replica = false;
        }
    }
}

fn check_replica_request(shard: &Shard, user: UserId, body: &Body<'_>) -> Result<ReplicaRequest> {
    shard.check_universe(user, Access::READ)?;
    shard.conditions().check(Need::Read)?;
    let registers = || -> Result<()> {
        shard.store().check_access(user, Object::Space(system::CLUSTER), Access::WRITE).on_wire()
    };
    match *body {
        Body::Join { instance_uuid } => {
            registers()?;
            let request = JoinRequest::new(instance_uuid).map_err(|error| error.0)?;
            check_other(shard, request.replica)?;
            Ok(ReplicaRequest::Join(request))
        }
        Body::Register { instance_uuid, vclock } => {
            registers()?;
            let (request, vclock) = JoinRequest::register(instance_uuid, vclock).map_err(|error| error.0)?;
            check_other(shard, request.replica)?;
            if shard.replica_id_of(request.replica).is_some() {
                let message = format!("Replica '{}' is not anonymous and cannot register.", request.replica);
                return Err(ErrorObject::client(ErrorCode::ReplicaNotAnon, message));
            }
            Ok(ReplicaRequest::Register(request, Box::new(vclock)))
        }
        Body::Subscribe(subscribe) => {
            let request = SubscribeRequest::new(&subscribe).map_err(|error| error.0)?;
            check_other(shard, request.replica)?;
            request.check_cluster(shard.identity().cluster).map_err(|error| error.0)?;
            let id = match shard.replica_id_of(request.replica) {
                Some(id) => id,
                None if request.is_anonymous => 0,
                None => {
                    let (replica, cluster) = (request.replica, shard.identity().cluster);
                    let message = format!("Replica {replica} is not registered with replica set {cluster}");
                    return Err(ErrorObject::client(ErrorCode::UnknownReplica, message));
                }
            };
            Ok(ReplicaRequest::Subscribe(Box::new(request), id))
        }
        _ => Ok(ReplicaRequest::FetchSnapshot),
    }
}

fn check_other(shard: &Shard, replica: Uuid) -> Result<()> {
    if replica != shard.identity().instance {
        return Ok(());
    }
    let message = "Connection to self is not supported: the replica has the UUID of this instance";
    Err(ErrorObject::client(ErrorCode::ConnectionToSelf, message))
}
