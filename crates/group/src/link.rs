//! The beginning of a link between two nodes, and the order of its messages.
//!
//! A link is a pair of connections, one each way. The sender of a connection begins it with a [`Hello`]; messages follow, and
//! arrive in order or not at all, since a connection that breaks loses everything behind a place. A node may have two
//! connections to the same peer for a while, the old one slow to end. [`Peers`] takes messages of the newest one alone,
//! so that no message from before the break arrives behind one from after it.
//!
//! Absent: sockets, secrets and TLS. The owner has authenticated the peer before it reads a hello.

use std::collections::BTreeMap;

use lycosa_tuple::mp::{self, Reader};
use uuid::Uuid;

use crate::base::uuid;
use crate::codec::{CodecError, exhausted, fields};
use crate::members::NodeId;

const HELLO_FIELDS: u32 = 6;

/// The number of a connection: a later one of the same node is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionNumber {
    /// Greater at each start of the sender ([`GroupLog::incarnation`](crate::log::GroupLog::incarnation)).
    pub incarnation: u64,
    /// Greater with each connection that the sender opens.
    pub number: u64,
}

/// What a sender says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Its group.
    pub group: Uuid,
    /// Its number.
    pub from: NodeId,
    /// The node that it wants to talk to.
    pub to: NodeId,
    /// Which of its connections this is.
    pub connection: ConnectionNumber,
    /// The newest level of rows and records that it knows.
    pub knows: u32,
}

/// Why a connection is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// It is of another group.
    #[error("node {from} belongs to group {found}, this node to group {own}")]
    Group {
        /// The sender.
        from: NodeId,
        /// Its group.
        found: Uuid,
        /// The own group.
        own: Uuid,
    },
    /// It is for another node.
    #[error("a connection for node {to} came to node {own}: an address in the list of members is wrong")]
    Addressee {
        /// The node that is wanted.
        to: NodeId,
        /// The own number.
        own: NodeId,
    },
    /// A newer connection of the same node exists.
    #[error("node {from} has a newer connection already")]
    Old {
        /// The sender.
        from: NodeId,
    },
}

impl Hello {
    /// Appends the hello to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        mp::write_array(out, HELLO_FIELDS);
        mp::write_bin(out, self.group.as_bytes());
        let ConnectionNumber { incarnation, number } = self.connection;
        for field in [self.from, self.to, incarnation, number, self.knows.into()] {
            mp::write_uint(out, field);
        }
    }

    /// Reads a hello, which is all of `bytes`.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        fields(reader, HELLO_FIELDS)?;
        let group = uuid(reader)?;
        let (from, to) = (reader.uint()?, reader.uint()?);
        let connection = ConnectionNumber { incarnation: reader.uint()?, number: reader.uint()? };
        let knows = reader.uint()?;
        let knows = u32::try_from(knows).map_err(|_| CodecError::Value("level", knows))?;
        exhausted(reader).map(|()| Self { group, from, to, connection, knows })
    }
}

/// The newest connection of each peer.
#[derive(Debug, Clone)]
pub struct Peers {
    group: Uuid,
    node: NodeId,
    newest: BTreeMap<NodeId, Hello>,
}

impl Peers {
    /// The peers of a node, none of which is connected.
    #[must_use]
    pub fn new(group: Uuid, node: NodeId) -> Self {
        Self { group, node, newest: BTreeMap::new() }
    }

    /// Takes a connection. Messages of an older one from the same node count no more; its owner closes it.
    ///
    /// # Errors
    /// [`HelloError`]; the connection is to be closed.
    pub fn greet(&mut self, hello: Hello) -> Result<(), HelloError> {
        let Hello { group, from, to, connection, .. } = hello;
        if group != self.group {
            return Err(HelloError::Group { from, found: group, own: self.group });
        }
        if to != self.node {
            return Err(HelloError::Addressee { to, own: self.node });
        }
        if self.newest.get(&from).is_some_and(|newest| newest.connection >= connection) {
            return Err(HelloError::Old { from });
        }
        self.newest.insert(from, hello);
        Ok(())
    }

    /// Whether a message counts that came over this connection.
    #[must_use]
    pub fn is_newest(&self, from: NodeId, connection: ConnectionNumber) -> bool {
        self.newest.get(&from).is_some_and(|newest| newest.connection == connection)
    }

    /// The level that a peer knows, if it has connected.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> Option<u32> {
        self.newest.get(&node).map(|hello| hello.knows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(incarnation: u64, number: u64) -> Hello {
        let connection = ConnectionNumber { incarnation, number };
        Hello { group: Uuid::from_u128(1), from: 2, to: 1, connection, knows: 3 }
    }

    #[test]
    fn a_hello_reads_back() {
        let mut bytes = Vec::new();
        hello(7, 1 << 40).encode(&mut bytes);
        assert_eq!(Hello::decode(&bytes), Ok(hello(7, 1 << 40)));
        for length in 0..bytes.len() {
            assert!(Hello::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn messages_of_an_older_connection_count_no_more() {
        let mut peers = Peers::new(Uuid::from_u128(1), 1);
        assert_eq!(peers.knows(2), None);
        for (incarnation, number) in [(5, 1), (5, 2), (9, 1)] {
            let next = hello(incarnation, number);
            assert_eq!(peers.greet(next), Ok(()));
            assert!(peers.is_newest(2, next.connection));
            assert!(!peers.is_newest(2, hello(5, 0).connection));
        }
        assert!(!peers.is_newest(2, hello(5, 2).connection));
        assert_eq!(peers.greet(hello(5, 3)), Err(HelloError::Old { from: 2 }));
        assert_eq!(peers.greet(hello(9, 1)), Err(HelloError::Old { from: 2 }));
        assert_eq!(peers.knows(2), Some(3));
    }

    #[test]
    fn strangers_are_told_what_is_wrong() {
        let mut peers = Peers::new(Uuid::from_u128(1), 1);
        let elsewhere = Hello { group: Uuid::from_u128(2), ..hello(1, 1) };
        assert!(matches!(peers.greet(elsewhere), Err(HelloError::Group { .. })));
        let refused = peers.greet(Hello { to: 4, ..hello(1, 1) });
        assert_eq!(refused, Err(HelloError::Addressee { to: 4, own: 1 }));
        assert_eq!(peers.knows(2), None);
    }
}
