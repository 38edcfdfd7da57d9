//! The instance of a server, made of the data that were opened and of the configuration.

use anyhow::Context;
use lycosa_engine::snapshots;
use lycosa_instance::{Identity, Instance, Process};
use lycosa_journal::directory::Directory;
use lycosa_journal::retention::Inventory;
use lycosa_queue::Queue;
use uuid::Uuid;

use crate::clock::now;
use crate::config::Config;
use crate::declarations::{declare, declare_expirations, effective_values};
use crate::random::fill_randomly;
use crate::{replication, startup, storage};

/// Seconds for which a queue session outlives its last connection in a group, if nothing else is configured, and the least number.
const MEMBER_TTR: f64 = 60.0;
const LEAST_MEMBER_TTR: f64 = 2.0;

/// How an instance begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes writes.
    Single,
    /// It waits for masters.
    Orphan,
    /// It is a member of a group.
    Member,
}

/// What the instance of a server is at its start.
pub(crate) fn standing_of(is_member: bool, masters: usize) -> Standing {
    match (is_member, masters) {
        (true, _) => Standing::Member,
        (false, 0) => Standing::Single,
        (false, _) => Standing::Orphan,
    }
}

/// The instance on data that were opened.
pub(crate) fn instance_on(
    config: &Config,
    directory: &Directory,
    opened: storage::Opened,
    standing: Standing,
) -> anyhow::Result<Instance> {
    let storage::Opened { mut store, identity, vclock, snapshot, is_damaged, .. } = opened;
    store.set_body_check(lycosa_lua::check_body);
    store.set_sql(lycosa_lua::SQL_KNOWLEDGE);
    for (space, name, fault) in store.unknown_checks() {
        tracing::warn!(
            "space '{}' has the check constraint '{name}', which is not understood ({fault}): changes of the space are refused \
             until it is disabled or dropped",
            space.name()
        );
    }
    for (what, reason) in store.unknown_texts() {
        tracing::warn!(
            "{what} is not understood ({reason}): statements of SQL that need it fail until it is dropped"
        );
    }
    let mut instance = start_instance(config, identity, store, vclock, standing)?;
    instance.set_configuration(effective_values(config));
    instance.keep_history();
    let inventory = Inventory::of(directory).context("cannot read the sizes of the files")?;
    instance.set_checkpoint_base(snapshot, snapshots::measure(directory, &inventory, snapshot));
    if is_damaged {
        instance.force_checkpoint();
    }
    Ok(instance)
}

/// Starts the queue, with the users and tubes that the configuration declares.
fn start_instance(
    config: &Config,
    identity: Identity,
    store: lycosa_store::Store,
    vclock: lycosa_iproto::vclock::Vclock,
    standing: Standing,
) -> anyhow::Result<Instance> {
    let mut queue = storage::queue_settings(config);
    // A new leader knows the owners of tasks from rows.
    if standing == Standing::Member {
        queue.in_replicaset = true;
        // Sessions outlive a change of the leader.
        let ttr = if config.is_default("queue.ttr") {
            MEMBER_TTR
        } else {
            config.queue_ttr.as_secs_f64().max(LEAST_MEMBER_TTR)
        };
        queue.ttr = Some(lycosa_queue::Seconds::from_double(ttr));
    }
    let queue = Queue::new(queue, Box::new(|| Uuid::new_v4().into_bytes()));
    let process = Process { id: std::process::id(), entropy: Box::new(fill_randomly) };
    let settings = storage::instance_settings(config);
    let mut instance = Instance::new(settings, identity, process, store, queue, vclock, now());
    instance.set_native_queue(config.native_queue);
    instance.set_queue_on_demand(config.queue_on_demand);
    instance.recall_term(replication::fence::read(&config.data_dir, identity.cluster)?);
    if standing == Standing::Member {
        // The group says when it takes writes; then its queue starts.
        instance.join_group(now());
        return Ok(instance);
    }
    let waits = config.queue_on_demand && config.declared.tubes.is_empty();
    if standing == Standing::Orphan {
        // The queue starts when the instance may write: rows of its own now would be in the way of its masters'.
        instance.set_orphan(true, now());
    } else if config.native_queue && !waits && !instance.is_fenced() {
        let report = instance.start(now()).context("the queue cannot start on this data")?;
        startup::report(&report);
        declare(&mut instance, config).map_err(anyhow::Error::msg)?;
        declare_expirations(&mut instance, config).map_err(anyhow::Error::msg)?;
    }
    instance.set_read_only(config.read_only, now());
    Ok(instance)
}
