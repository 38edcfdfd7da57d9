//! Conversion of data folders: from a single server to the first member of a group, and from the last member to a single server.
//!
//! Both need the folder for themselves: a server that runs holds its lock.

use anyhow::{Context, bail, ensure};
use lycosa_engine::group;
use lycosa_instance::Identity;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::Directory;
use lycosa_journal::recovery::Recovery;
use uuid::Uuid;

use crate::clock::now;
use crate::config::Config;
use crate::storage::{store_settings, writer_settings};

/// The result of [`init`].
#[derive(Debug, Clone)]
pub struct Begun {
    /// The new group.
    pub group: Uuid,
    /// Where other members reach the first one.
    pub address: String,
}

/// Makes the data folder that of node 1 of a new group. `address` takes the place of `cluster.listen` in the list of members.
///
/// # Errors
/// The folder is in use, belongs to a group already, or cannot be loaded; there is no address that others can reach.
pub fn init(config: &Config, address: Option<&str>) -> anyhow::Result<Begun> {
    begin(config, member_address(config, address)?)
}

/// The level of records that a member goes up to: that of `cluster.level`, or the newest.
pub(super) fn level(config: &Config) -> u32 {
    match u32::try_from(config.cluster_level) {
        Ok(level) if level > 0 => level.min(group::FEATURE_LEVEL),
        _ => group::FEATURE_LEVEL,
    }
}

/// The address at which other members reach this one.
///
/// # Errors
/// No address of this server can be reached by other members.
fn member_address(config: &Config, address: Option<&str>) -> anyhow::Result<String> {
    let listen = config.cluster_listen.as_ref().map(ToString::to_string);
    let address = address.map(str::to_owned).or(listen).context(
        "no address for the other members: name it with --member-address HOST:PORT, or set cluster.listen in lycosa.toml",
    )?;
    ensure!(
        !["0.0.0.0:", "[::]:", "tls://0.0.0.0:", "tls://[::]:"].iter().any(|any| address.starts_with(any)),
        "{address} means every address of this machine, which other members cannot connect to: name one with \
         --member-address HOST:PORT"
    );
    Ok(address)
}

fn begin(config: &Config, address: String) -> anyhow::Result<Begun> {
    let directory = Directory::open(&config.data_dir)?;
    let (store, log) = (store_settings(config), writer_settings(config));
    let found = Recovery::open(&directory, Mode::Strict)?.map(|recovery| recovery.instance());
    let instance = found.unwrap_or_else(Uuid::new_v4);
    let identity = Identity { instance, cluster: Uuid::new_v4(), replica_id: 1 };
    let group = Uuid::new_v4();
    let new = group::NewGroup { group, address: address.clone(), level: level(config) };
    group::begin(&directory, store, log, &identity, new, now())?;
    Ok(Begun { group, address })
}

/// Makes the data folder of the last member that of a single server.
///
/// # Errors
/// The folder is in use or no member's, it cannot be loaded, or the group has other members.
pub fn leave(config: &Config) -> anyhow::Result<group::Identity> {
    end(config, false)
}

/// Gives the other members up: the data folder is that of node 1 of a new group, with an address as for [`init`]. Returns who the
/// member was.
///
/// # Errors
/// The folder is in use or no member's, or cannot be loaded; there is no address that others can reach.
pub fn recover(config: &Config, address: Option<&str>) -> anyhow::Result<(group::Identity, Begun)> {
    // The address is looked at before anything is changed.
    let address = member_address(config, address)?;
    let member = end(config, true)?;
    Ok((member, begin(config, address)?))
}

/// `forced`: other members are given up.
fn end(config: &Config, forced: bool) -> anyhow::Result<group::Identity> {
    let directory = Directory::open(&config.data_dir)?;
    let Some(member) = group::folder::member_of(&directory)? else {
        bail!("the data folder {} belongs to no group: nothing to leave", config.data_dir.display());
    };
    let recovery = Recovery::open(&directory, Mode::Strict)?;
    let instance = recovery.context("the folder has no snapshot of the group yet")?.instance();
    let identity = Identity { instance, cluster: Uuid::nil(), replica_id: 1 };
    group::leave(&directory, store_settings(config), writer_settings(config), &identity, forced, now())?;
    Ok(member)
}
