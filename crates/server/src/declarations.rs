//! Declarations of the configuration, carried out on the instance: users, tubes, expiration tasks. And the values of `box.cfg`.

use lycosa_instance::{DeclaredTube, DeclaredUser, Instance};
use lycosa_tuple::value::Value;

use crate::clock::now;
use crate::config::Config;

/// Makes the users and tubes that the configuration declares, and says what differs from what exists.
pub(crate) fn declare(instance: &mut Instance, config: &Config) -> Result<(), String> {
    let users: Vec<_> = config.declared.users.iter().map(declared_user).collect();
    let tubes: Vec<_> = config.declared.tubes.iter().map(declared_tube).collect();
    let declared = instance.declare(&users, &tubes, now()).map_err(|error| error.message)?;
    if !declared.users.is_empty() {
        tracing::info!("created users of the configuration: {}", declared.users.join(", "));
    }
    if !declared.tubes.is_empty() {
        tracing::info!("created tubes of the configuration: {}", declared.tubes.join(", "));
    }
    for difference in &declared.differences {
        tracing::warn!("{difference}");
    }
    Ok(())
}

/// Begins the expiration tasks that the configuration declares, and changes the tasks that it declares differently now.
pub(crate) fn declare_expirations(instance: &mut Instance, config: &Config) -> Result<(), String> {
    let declare = |task: &crate::config::DeclaredExpiration| lycosa_instance::DeclaredExpiration {
        name: task.name.clone(),
        space: task.space.clone(),
        options: task.options(),
    };
    let declared: Vec<_> = config.declared.expirations.iter().map(declare).collect();
    let begun = instance.declare_expirations(&declared, now()).map_err(|error| error.message)?;
    if !begun.is_empty() {
        tracing::info!("began expiration tasks of the configuration: {}", begun.join(", "));
    }
    Ok(())
}

fn declared_user(user: &crate::config::DeclaredUser) -> DeclaredUser {
    DeclaredUser {
        name: user.name.clone(),
        password: user.password.clone(),
        roles: user.roles.clone(),
        tubes: user.tubes.clone(),
    }
}

fn declared_tube(tube: &crate::config::DeclaredTube) -> DeclaredTube {
    DeclaredTube { name: tube.name.clone(), kind: tube.kind.clone(), options: tube.values() }
}

/// The configuration as `box.cfg` shows it.
pub(crate) fn effective_values(config: &Config) -> Vec<(String, Value)> {
    config
        .effective()
        .map(|(setting, text, _)| (setting.key.replace('.', "_"), Value::from(&*text)))
        .collect()
}
