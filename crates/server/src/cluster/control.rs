//! Orders of operators to a node: `cluster.sock` in the data folder, one line of JSON each way.
//!
//! The socket is the server's own account's (mode 0600), as `admin.sock`. A node that does not lead passes orders on to
//! the leader over a connection between members; `status` is answered by the node itself, so that it works without a leader.

use std::rc::Rc;

use lycosa_engine::group::{MAX_MEMBERS, NodeId};
use lycosa_instance::GroupMember;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::task::spawn_local;

use super::handshake::{PATIENCE, Purpose, frame, next_frame, read_frame, send_frame};
use super::member::{Member, Place};
use super::port::{Port, Visit};

/// The socket for orders, in the data folder.
pub const CLUSTER_SOCKET: &str = "cluster.sock";
/// Bytes of an order or an answer.
const MAX_LINE: usize = 64 << 10;

/// An operator's order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum Order {
    /// Where the node and the group stand.
    Status,
    /// Take the empty server at this address in.
    Add {
        /// `[tls://]HOST:PORT`, its `cluster.listen`.
        address: String,
    },
    /// Remove a member.
    Remove {
        /// Its number.
        node: NodeId,
    },
    /// Hand over to another voter, or to the one whose log is the longest.
    Transfer {
        /// Its number.
        node: Option<NodeId>,
    },
}

/// Takes orders until the task is dropped.
pub(crate) async fn accept(port: Rc<Port>, listener: UnixListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let port = port.clone();
        spawn_local(async move {
            let (reading, mut writing) = stream.into_split();
            let mut lines = BufReader::new(reading.take(MAX_LINE as u64)).lines();
            let Ok(Some(line)) = lines.next_line().await else { return };
            let answer = match read(line.as_bytes()) {
                Ok(order) => carry_out(&port, order).await,
                Err(unread) => unread,
            };
            // A closed connection reads no answer.
            let _ = writing.write_all(format!("{answer}\n").as_bytes()).await;
        });
    }
}

fn read(order: &[u8]) -> Result<Order, Json> {
    serde_json::from_slice(order)
        .map_err(|error| json!({"error": format!("the order cannot be read: {error}")}))
}

async fn carry_out(port: &Port, order: Order) -> Json {
    let Some(member) = port.member() else {
        return match order {
            Order::Status => json!({"state": "waiting"}),
            _ => json!({"error": "this server belongs to no group yet: give the order at a member"}),
        };
    };
    if matches!(order, Order::Status) {
        return status(&member);
    }
    let place = *member.place().borrow();
    match place {
        Place::Here => lead(&member, &order),
        Place::Nowhere => {
            json!({"error": "the group has no leader now: a majority of its voters has to run and reach each other. `lycosa cluster status` shows them"})
        }
        Place::At(leader) => match ask(&member, leader, &order).await {
            Ok(answer) => answer,
            Err(error) => {
                json!({"error": format!("node {leader} leads and did not answer: {error}. The order may have been carried out: see `lycosa cluster status`")})
            }
        },
    }
}

/// The time of the leader, in microseconds since the epoch; `None` if the node does not lead, or its program does not tell.
pub(crate) async fn time_of(member: &Member, leader: NodeId) -> anyhow::Result<Option<u64>> {
    let answer = ask(member, leader, &Order::Status).await?;
    Ok(if answer["leads"] == true { answer["time"].as_u64() } else { None })
}

async fn ask(member: &Member, leader: NodeId, order: &Order) -> anyhow::Result<Json> {
    let mut stream = member.dial(leader, Purpose::Order).await?;
    send_frame(&mut stream, &serde_json::to_vec(order)?).await?;
    let answer = tokio::time::timeout(PATIENCE, read_frame(&mut stream, MAX_LINE)).await??;
    Ok(serde_json::from_slice(&answer)?)
}

/// An order that another member has passed on.
pub(crate) async fn visit(member: Rc<Member>, mut visit: Visit) {
    let Ok(Some(order)) = next_frame(&mut visit.reader, MAX_LINE).await else { return };
    let answer = read(&order).map_or_else(|unread| unread, |order| lead(&member, &order));
    let _ = visit.writer.write_all(&frame(answer.to_string().as_bytes())).await;
    let _ = visit.writer.shut_down();
}

/// Carries out an order as the leader.
fn lead(member: &Rc<Member>, order: &Order) -> Json {
    let done = match order {
        Order::Status => return status(member),
        Order::Add { address } => {
            let voters = member.journal().members().len();
            if voters >= MAX_MEMBERS {
                return json!({"error": format!("the group has {voters} members, which is its limit: remove one first")});
            }
            member
                .call(|journal| journal.add(address))
                .map(|(node, _)| json!({"node": node, "address": address}))
        }
        Order::Remove { node } => {
            member.call(|journal| journal.remove(*node)).map(|()| json!({"removed": node}))
        }
        Order::Transfer { node } => {
            member.call(|journal| journal.transfer(*node)).map(|node| json!({"successor": node}))
        }
    };
    done.unwrap_or_else(|refusal| json!({"error": refusal.to_string()}))
}

/// The status of the node and its group.
pub(crate) fn status(member: &Member) -> Json {
    let journal = member.journal();
    let (status, failure) = (journal.status(), journal.failure());
    let (own, forwarded) = (status.identity.node, member.forwarded());
    let shown = |one: GroupMember| {
        let mut shown = json!({
            "node": one.node, "address": one.address, "standing": one.standing,
            "is_leader": status.node.leader == Some(one.node), "is_connected": one.is_connected,
            "level": if one.node == own { Some(journal.knows()) } else { member.links.knows(one.node) },
        });
        if let Some(progress) = one.progress {
            shown["lag"] = progress.lag.into();
            shown["is_active"] = progress.is_active.into();
            shown["awaits_snapshot"] = progress.awaits_snapshot.into();
        }
        shown
    };
    let members: Vec<Json> = member.members().into_iter().map(shown).collect();
    json!({
        "state": match &failure {
            Some(_) => "failed",
            None if status.is_loading => "loading",
            None => "running",
        },
        "failure": failure,
        "group": status.identity.group.to_string(),
        "node": own,
        "role": journal.election().state,
        "leads": status.leads,
        "leader": status.node.leader,
        "term": status.node.term,
        "committed": status.node.committed,
        "applied": status.held,
        "last": status.node.last,
        "level": status.node.level,
        "time": crate::clock::now(),
        "leader_ahead_us": member.leader_ahead.get(),
        "forwarded": {"requests": forwarded.requests, "repeated": forwarded.repeated, "unknown": forwarded.unknown},
        "members": members,
    })
}
