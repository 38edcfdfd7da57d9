//! Orders of operators to a node: `cluster.sock` in the data folder, one line of JSON each way.
//!
//! The socket is the server's own account's (mode 0600), as `admin.sock`. A node that does not lead passes orders on to
//! the leader over a connection between members; `status` is answered by the node itself, so that it works without a leader.

use std::rc::Rc;

use lycosa_engine::group::{MAX_MEMBERS, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::task::spawn_local;

use super::handshake::{Purpose, frame, next_frame, read_frame};
use super::member::{Member, Place, standing};
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
            let answer = match serde_json::from_str(&line) {
                Ok(order) => carry_out(&port, order).await,
                Err(error) => json!({"error": format!("the order cannot be read: {error}")}),
            };
            // A closed connection reads no answer.
            let _ = writing.write_all(format!("{answer}\n").as_bytes()).await;
        });
    }
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
    let status = member.status();
    let address = status.members.get(leader).map(|member| member.address.clone());
    let address = address.ok_or_else(|| anyhow::anyhow!("it is no member any more"))?;
    let mut stream = member.links().dialer().open(&address, Purpose::Order, status.identity.group).await?;
    stream.write_all(&frame(&serde_json::to_vec(order)?)).await?;
    stream.flush().await?;
    let answer =
        tokio::time::timeout(super::handshake::PATIENCE, read_frame(&mut stream, MAX_LINE)).await??;
    Ok(serde_json::from_slice(&answer)?)
}

/// An order that another member has passed on.
pub(crate) async fn visit(member: Rc<Member>, mut visit: Visit) {
    let Ok(Some(order)) = next_frame(&mut visit.reader, MAX_LINE).await else { return };
    let answer = match serde_json::from_slice(&order) {
        Ok(order) => lead(&member, &order),
        Err(error) => json!({"error": format!("the order cannot be read: {error}")}),
    };
    let _ = visit.writer.write_all(&frame(answer.to_string().as_bytes())).await;
    let _ = visit.writer.shut_down();
}

/// Carries out an order as the leader.
fn lead(member: &Rc<Member>, order: &Order) -> Json {
    let done = match order {
        Order::Status => return status(member),
        Order::Add { address } => {
            let voters = member.status().members.iter().count();
            if voters >= MAX_MEMBERS {
                return json!({"error": format!("the group has {voters} members, which is its limit: remove one first")});
            }
            member.add(address).map(|node| json!({"node": node, "address": address}))
        }
        Order::Remove { node } => member.remove(*node).map(|()| json!({"removed": node})),
        Order::Transfer { node } => member.transfer(*node).map(|node| json!({"successor": node})),
    };
    done.unwrap_or_else(|refusal| json!({"error": refusal.to_string()}))
}

/// The status of the node and its group.
pub(crate) fn status(member: &Member) -> Json {
    let (status, failure) = (member.status(), member.failure());
    let own = status.identity.node;
    let members: Vec<Json> = status
        .members
        .iter()
        .map(|one| {
            let progress = status.node.progress.iter().find(|progress| progress.node == one.node);
            let mut shown = json!({
                "node": one.node, "address": one.address, "standing": standing(one.standing),
                "is_leader": status.node.leader == Some(one.node),
                "is_connected": one.node == own || member.links().is_connected(one.node),
                "level": if one.node == own { Some(member.knows()) } else { member.links().knows(one.node) },
            });
            if let Some(progress) = progress {
                shown["lag"] = status.node.last.saturating_sub(progress.matched).into();
                shown["is_active"] = progress.is_active.into();
                shown["awaits_snapshot"] = progress.snapshot.is_some().into();
            }
            shown
        })
        .collect();
    json!({
        "state": match &failure {
            Some(_) => "failed",
            None if status.is_loading => "loading",
            None => "running",
        },
        "failure": failure,
        "group": status.identity.group.to_string(),
        "node": own,
        "role": member.election().state,
        "leads": status.leads,
        "leader": status.node.leader,
        "term": status.node.term,
        "committed": status.node.committed,
        "applied": status.held,
        "last": status.node.last,
        "level": status.node.level,
        "time": crate::clock::now(),
        "leader_ahead_us": member.leader_ahead(),
        "members": members,
    })
}
