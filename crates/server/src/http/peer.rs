//! Clients by their addresses.

use std::net::SocketAddr;

/// The address of a request's client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);
