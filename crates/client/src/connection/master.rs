//! The choice among several addresses: the client tries all at once and keeps the server that takes writes.
//!
//! Every member of a group takes requests, and a follower passes them on. The leader itself is the best choice, but a
//! leader that is frozen says nothing: after a short time a member that passes requests on is as good.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lycosa_iproto::request::Body;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Connection, lookout};
use crate::error::{Error, Result};
use crate::options::ConnectOptions;
use crate::standing::Standing;

/// How long the other servers are waited for when one takes writes and may not be the only one that does.
const RIVAL_GRACE: Duration = Duration::from_secs(1);

/// The result of an attempt to connect, and the address.
type Asked = (Result<(Connection, Standing)>, String);

impl Connection {
    pub(super) async fn connect_to_master(options: &ConnectOptions, avoided: Option<&str>) -> Result<Self> {
        let mut attempts = Self::ask_all(options, options.addresses());
        let mut causes = Vec::new();
        let mut best: Option<(Self, Standing)> = None;
        let mut deadline = None;
        loop {
            let attempt = match deadline {
                None => attempts.join_next().await,
                Some(deadline) => {
                    tokio::time::timeout_at(deadline, attempts.join_next()).await.unwrap_or(None)
                }
            };
            let Some(attempt) = attempt else { break };
            match attempt {
                Ok((Ok((connection, standing)), address)) if standing.takes_writes => {
                    let is_avoided = avoided == Some(address.as_str());
                    if standing.is_sound() && !standing.is_forwarded() && !is_avoided {
                        return Ok(connection.watched(options, &standing));
                    }
                    let grace = if standing.is_forwarded() { options.leader_grace } else { RIVAL_GRACE };
                    let until = Instant::now() + grace;
                    let is_better = best.as_ref().is_none_or(|(other, others)| {
                        let was_avoided = avoided == Some(other.address());
                        standing.outranks(others) || was_avoided && !others.outranks(&standing)
                    });
                    if is_better {
                        best = Some((connection, standing));
                    }
                    deadline = Some(deadline.map_or(until, |known: Instant| known.min(until)));
                }
                Ok((Ok(_), address)) => causes.push(format!("{address} takes no writes")),
                Ok((Err(error @ (Error::Connect { .. } | Error::Tls { .. })), _)) => {
                    causes.push(error.to_string());
                }
                Ok((Err(error), address)) => causes.push(format!("{address}: {error}")),
                Err(error) => causes.push(error.to_string()),
            }
        }
        if let Some((connection, standing)) = best {
            return Ok(connection.watched(options, &standing));
        }
        causes.sort();
        Err(Error::NoMaster(causes.join("; ")))
    }

    /// The same connection, which is left when its server falls silent and another one of these serves.
    fn watched(self, options: &ConnectOptions, standing: &Standing) -> Self {
        self.handle.is_in_group.store(standing.is_in_group(), Ordering::Relaxed);
        lookout::begin(&self, options, standing.is_in_group());
        self
    }

    /// Connects to each of these addresses, and asks for the ballots.
    pub(super) fn ask_all(
        options: &ConnectOptions,
        addresses: impl Iterator<Item = String>,
    ) -> JoinSet<Asked> {
        let mut attempts = JoinSet::new();
        for address in addresses {
            let options = options.clone();
            attempts.spawn(async move {
                let connected = async {
                    let connection = Self::connect_to(&options, address.clone()).await?;
                    let standing = connection.standing().await?;
                    Ok((connection, standing))
                };
                (connected.await, address)
            });
        }
        attempts
    }

    /// The standing of the server as a master.
    pub(crate) async fn standing(&self) -> Result<Standing> {
        Standing::of_ballot(&self.request(&Body::Vote).await?.first_value()?)
    }

    /// The same, asked on a connection of its own: answers of one connection keep their order, and the one before may wait
    /// for replicas.
    pub(crate) async fn standing_asked_anew(&self, options: &ConnectOptions) -> Result<Standing> {
        Self::connect_to(options, self.address().to_owned()).await?.standing().await
    }

    /// Whether a server at another of the addresses is the master rather than this one, which says `own` about itself.
    pub(crate) async fn has_rival(&self, own: &Standing, options: &ConnectOptions) -> bool {
        let mut others = Self::ask_all(options, options.addresses().filter(|other| other != self.address()));
        while let Some(other) = others.join_next().await {
            if let Ok((Ok((_, standing)), _)) = other
                && standing.outranks(own)
            {
                return true;
            }
        }
        false
    }
}
