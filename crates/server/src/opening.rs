//! A data folder is opened, or filled first: an instance without data joins its masters or begins a replica set.

use std::sync::Arc;

use anyhow::Context;
use lycosa_instance::Identity;
use lycosa_journal::directory::Directory;
use lycosa_tls::rustls::ClientConfig;
use uuid::Uuid;

use crate::config::Config;
use crate::replication::bootstrap;
use crate::starting::{Progress, Stage};
use crate::storage::{Opened, begins_replica_set, open};

/// Opens the data in a folder. In an empty one, joins the masters of the configuration, or begins a new instance if there
/// are none. `rejoins`: the instance that joins again.
///
/// # Errors
/// As [`open`], and no master can be joined.
pub(crate) async fn open_or_join(
    directory: Directory,
    config: &Config,
    rejoins: Option<Uuid>,
    tls: Option<&Arc<ClientConfig>>,
    progress: &Progress,
) -> anyhow::Result<Opened> {
    let listing = directory.list().context("cannot read the data folder")?;
    let is_new = listing.snapshots.is_empty() && listing.xlogs.is_empty();
    let joins = is_new
        && (rejoins.is_some() || !begins_replica_set(config) || bootstrap::is_forestalled(config, tls).await);
    let opened = if joins {
        let instance = rejoins.or(config.wanted.instance).unwrap_or_else(Uuid::new_v4);
        progress.enter(Stage::Joining);
        bootstrap::join(directory, config, instance, tls, progress).await?
    } else {
        open(directory, config, progress)?
    };
    check_uuids(config, &opened.identity)?;
    if opened.identity.replica_id == 0 && config.replication.0.is_empty() {
        anyhow::bail!(
            "_cluster does not list instance {}; an anonymous replica cannot be started alone: name its master with \
             --replication",
            opened.identity.instance
        );
    }
    Ok(opened)
}

/// Refuses data of another instance or replica set than the program wants.
fn check_uuids(config: &Config, identity: &Identity) -> anyhow::Result<()> {
    let wanted = config.wanted;
    for (what, wanted, own) in
        [("Replica set", wanted.cluster, identity.cluster), ("Instance", wanted.instance, identity.instance)]
    {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != own) {
            anyhow::bail!("{what} UUID mismatch: expected {wanted}, got {own}");
        }
    }
    Ok(())
}
