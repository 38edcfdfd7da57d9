//! Requests as a client sends them.

use lycosa_tuple::mp;

use super::{AuthTuple, Body, Sql, Subscribe};
use crate::auth::METHOD;
use crate::body::{write_field, write_raw};
use crate::keys::{self, RequestType};

/// Appends a whole frame, its length included. What cannot be a request ([`AuthTuple::Malformed`]) is sent without
/// its faulty part.
pub fn encode(out: &mut Vec<u8>, sync: u64, body: &Body<'_>) {
    let start = out.len();
    mp::write_u32_wide(out, 0);
    mp::write_map(out, 2);
    write_field(out, keys::REQUEST_TYPE, body.kind().into());
    write_field(out, keys::SYNC, sync);
    encode_body(out, body);
    let length = out.len() - start - 5;
    out[start + 1..start + 5].copy_from_slice(&(length as u32).to_be_bytes());
}

impl Body<'_> {
    /// The number of the request's type.
    pub fn kind(&self) -> u32 {
        let known = match *self {
            Self::Select { .. } => RequestType::Select,
            Self::Insert { .. } => RequestType::Insert,
            Self::Replace { .. } => RequestType::Replace,
            Self::Update { .. } => RequestType::Update,
            Self::Upsert { .. } => RequestType::Upsert,
            Self::Delete { .. } => RequestType::Delete,
            Self::Call { .. } => RequestType::Call,
            Self::Call16 { .. } => RequestType::Call16,
            Self::Eval { .. } => RequestType::Eval,
            Self::Execute(..) => RequestType::Execute,
            Self::Prepare(_) => RequestType::Prepare,
            Self::Auth { .. } => RequestType::Auth,
            Self::Ping => RequestType::Ping,
            Self::Id { .. } => RequestType::Id,
            Self::VoteDeprecated => RequestType::VoteDeprecated,
            Self::Vote => RequestType::Vote,
            Self::Join { .. } => RequestType::Join,
            Self::Subscribe(_) => RequestType::Subscribe,
            Self::FetchSnapshot => RequestType::FetchSnapshot,
            Self::Register { .. } => RequestType::Register,
            Self::Unknown(kind) => return kind,
        };
        known as u32
    }
}

fn encode_body(out: &mut Vec<u8>, body: &Body<'_>) {
    match *body {
        Body::Select { space, index, limit, offset, iterator, key } => {
            mp::write_map(out, 6);
            write_field(out, keys::SPACE_ID, space.into());
            write_field(out, keys::INDEX_ID, index.into());
            write_field(out, keys::LIMIT, limit.into());
            write_field(out, keys::OFFSET, offset.into());
            write_field(out, keys::ITERATOR, iterator.into());
            write_raw(out, keys::KEY, key);
        }
        Body::Insert { space, tuple } | Body::Replace { space, tuple } => {
            mp::write_map(out, 2);
            write_field(out, keys::SPACE_ID, space.into());
            write_raw(out, keys::TUPLE, tuple);
        }
        Body::Update { space, index, base, key, operations } => {
            mp::write_map(out, 5);
            write_field(out, keys::SPACE_ID, space.into());
            write_field(out, keys::INDEX_ID, index.into());
            write_field(out, keys::INDEX_BASE, base as u64);
            write_raw(out, keys::KEY, key);
            write_raw(out, keys::TUPLE, operations);
        }
        Body::Upsert { space, base, tuple, operations } => {
            mp::write_map(out, 4);
            write_field(out, keys::SPACE_ID, space.into());
            write_field(out, keys::INDEX_BASE, base as u64);
            write_raw(out, keys::TUPLE, tuple);
            write_raw(out, keys::OPERATIONS, operations);
        }
        Body::Delete { space, index, key } => {
            mp::write_map(out, 3);
            write_field(out, keys::SPACE_ID, space.into());
            write_field(out, keys::INDEX_ID, index.into());
            write_raw(out, keys::KEY, key);
        }
        Body::Call { name, args } | Body::Call16 { name, args } => {
            mp::write_map(out, 2);
            write_text(out, keys::FUNCTION_NAME, name);
            write_raw(out, keys::TUPLE, args);
        }
        Body::Eval { text, args } => {
            mp::write_map(out, 2);
            write_text(out, keys::EXPRESSION, text);
            write_raw(out, keys::TUPLE, args);
        }
        Body::Execute(sql, parameters) => {
            mp::write_map(out, 2);
            write_raw(out, keys::SQL_BIND, parameters);
            encode_sql(out, sql);
        }
        Body::Prepare(sql) => {
            mp::write_map(out, 1);
            encode_sql(out, sql);
        }
        Body::Auth { user, scramble } => encode_auth(out, user, scramble),
        Body::Id { version, features } => {
            mp::write_map(out, 2);
            write_field(out, keys::VERSION, version);
            write_raw(out, keys::FEATURES, features);
        }
        Body::Join { instance_uuid } => {
            encode_replica(out, &Subscribe { instance_uuid, ..Subscribe::default() });
        }
        Body::Register { instance_uuid, vclock } => {
            encode_replica(out, &Subscribe { instance_uuid, vclock, ..Subscribe::default() });
        }
        Body::Subscribe(subscribe) => encode_replica(out, &subscribe),
        Body::Ping | Body::VoteDeprecated | Body::Vote | Body::FetchSnapshot | Body::Unknown(_) => {}
    }
}

fn encode_sql(out: &mut Vec<u8>, sql: Sql<'_>) {
    match sql {
        Sql::Text(text) => write_text(out, keys::SQL_TEXT, text),
        Sql::Prepared(id) => write_field(out, keys::STATEMENT_ID, id.into()),
    }
}

fn encode_auth(out: &mut Vec<u8>, user: &[u8], scramble: AuthTuple<'_>) {
    mp::write_map(out, 2);
    write_text(out, keys::USER_NAME, user);
    out.push(keys::TUPLE);
    match scramble {
        AuthTuple::ChapSha1(scramble) => {
            mp::write_array(out, 2);
            mp::write_str(out, METHOD.as_bytes());
            mp::write_str(out, scramble);
        }
        AuthTuple::Empty | AuthTuple::Malformed(_) => mp::write_array(out, 0),
    }
}

fn encode_replica(out: &mut Vec<u8>, replica: &Subscribe<'_>) {
    let given = [
        replica.cluster_uuid.is_some(),
        replica.instance_uuid.is_some(),
        replica.vclock.is_some(),
        replica.version != 0,
        replica.is_anonymous,
        replica.id_filter.is_some(),
        replica.lineage.is_some(),
    ];
    mp::write_map(out, given.into_iter().map(u32::from).sum());
    if let Some(uuid) = replica.cluster_uuid {
        write_text(out, keys::CLUSTER_UUID, uuid);
    }
    if let Some(uuid) = replica.instance_uuid {
        write_text(out, keys::INSTANCE_UUID, uuid);
    }
    if let Some(vclock) = replica.vclock {
        write_raw(out, keys::VCLOCK, vclock);
    }
    if replica.version != 0 {
        write_field(out, keys::SERVER_VERSION, replica.version.into());
    }
    if replica.is_anonymous {
        out.push(keys::REPLICA_ANON);
        mp::write_bool(out, true);
    }
    if let Some(ids) = replica.id_filter {
        write_raw(out, keys::ID_FILTER, ids);
    }
    if let Some(lineage) = replica.lineage {
        write_raw(out, keys::LINEAGE, lineage);
    }
}

fn write_text(out: &mut Vec<u8>, key: u8, text: &[u8]) {
    out.push(key);
    mp::write_str(out, text);
}
