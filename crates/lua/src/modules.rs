//! The modules, and how they get into a state.
//!
//! A module is a Rust function that pushes its table ([`NATIVE`]) or a Lua source ([`EMBEDDED`]); both are found by
//! `require`. A Lua source gets its native part by `require 'lycosa.NAME'`. Adding one is a line in a table here.

mod boxes;
mod console;
mod convert;
mod crypto;
mod decimal;
mod digest;
mod fiber;
mod fio;
mod json;
mod key_def;
pub(crate) mod log;
mod msgpack;
mod netbox;
mod options;
mod socket;
mod system;
mod tls;
mod utf8;
mod yaml;

use crate::api::{Lua, Native};
use crate::error::Error;
use crate::runtime::Types;

/// Modules in Rust, by the name that `require` takes. The function pushes the module.
const NATIVE: &[(&str, Native)] = &[
    ("lycosa.box", boxes::open),
    ("lycosa.console", console::open),
    ("lycosa.convert", convert::open),
    ("lycosa.crypto", crypto::open),
    ("lycosa.decimal", decimal::open),
    ("lycosa.digest", digest::open),
    ("lycosa.fiber", fiber::open),
    ("lycosa.fio", fio::open),
    ("lycosa.json", json::open),
    ("lycosa.key_def", key_def::open),
    ("lycosa.log", log::open),
    ("lycosa.msgpack", msgpack::open),
    ("lycosa.netbox", netbox::open),
    ("lycosa.socket", socket::open),
    ("lycosa.system", system::open),
    ("lycosa.tls", tls::open),
    ("lycosa.yaml", yaml::open),
    ("utf8", utf8::open),
];

/// Modules in Lua.
const EMBEDDED: &[(&str, &str)] = &[
    ("buffer", include_str!("modules/buffer.lua")),
    ("checks", include_str!("modules/checks.lua")),
    ("clock", include_str!("modules/clock.lua")),
    ("crypto", include_str!("modules/crypto.lua")),
    ("csv", include_str!("modules/csv.lua")),
    ("decimal", include_str!("modules/decimal.lua")),
    ("digest", include_str!("modules/digest.lua")),
    ("errno", include_str!("modules/errno.lua")),
    ("fiber", include_str!("modules/fiber.lua")),
    ("fio", include_str!("modules/fio.lua")),
    ("fun", include_str!("modules/fun.lua")),
    ("help", include_str!("modules/help.lua")),
    ("http.client", include_str!("modules/http_client.lua")),
    ("iconv", include_str!("modules/iconv.lua")),
    ("json", include_str!("modules/json.lua")),
    ("key_def", include_str!("modules/key_def.lua")),
    ("log", include_str!("modules/log.lua")),
    ("merger", include_str!("modules/merger.lua")),
    ("msgpack", include_str!("modules/msgpack.lua")),
    ("msgpackffi", include_str!("modules/msgpackffi.lua")),
    ("net.box", include_str!("modules/net_box/init.lua")),
    ("lycosa.net_box.arguments", include_str!("modules/net_box/arguments.lua")),
    ("lycosa.net_box.errors", include_str!("modules/net_box/errors.lua")),
    ("lycosa.net_box.future", include_str!("modules/net_box/future.lua")),
    ("lycosa.net_box.keys", include_str!("modules/net_box/keys.lua")),
    ("lycosa.net_box.own", include_str!("modules/net_box/own.lua")),
    ("lycosa.net_box.reply", include_str!("modules/net_box/reply.lua")),
    ("lycosa.net_box.space", include_str!("modules/net_box/space.lua")),
    ("lycosa.net_box.transport", include_str!("modules/net_box/transport.lua")),
    ("pickle", include_str!("modules/pickle.lua")),
    ("popen", include_str!("modules/popen.lua")),
    ("pwd", include_str!("modules/pwd.lua")),
    ("serializer", include_str!("modules/serializer.lua")),
    ("socket", include_str!("modules/socket.lua")),
    ("strict", include_str!("modules/strict.lua")),
    ("tap", include_str!("modules/tap.lua")),
    ("tarantool", include_str!("modules/tarantool.lua")),
    ("title", include_str!("modules/title.lua")),
    ("uri", include_str!("modules/uri.lua")),
    ("uuid", include_str!("modules/uuid.lua")),
    ("yaml", include_str!("modules/yaml.lua")),
    ("box", include_str!("modules/box.lua")),
    ("lycosa.box.error", include_str!("modules/box_error.lua")),
    ("lycosa.box.func", include_str!("modules/box_func.lua")),
    ("box.internal", include_str!("modules/box_internal.lua")),
    ("lycosa.box.schema", include_str!("modules/box_schema.lua")),
    ("lycosa.box.index", include_str!("modules/box_index.lua")),
    ("lycosa.box.named", include_str!("modules/box_named.lua")),
    ("lycosa.box.sequence", include_str!("modules/box_sequence.lua")),
    ("lycosa.box.options", include_str!("modules/box_options.lua")),
    ("lycosa.box.settings", include_str!("modules/box_settings.lua")),
    ("lycosa.box.sql", include_str!("modules/box_sql.lua")),
    ("lycosa.box_checks", include_str!("modules/box_checks.lua")),
    ("lycosa.sql_definitions", include_str!("modules/box_sql_definitions.lua")),
    ("lycosa.sql_conflicts", include_str!("modules/box_sql_conflicts.lua")),
    ("lycosa.sql_rules", include_str!("modules/box_sql_rules.lua")),
    ("lycosa.box.trigger", include_str!("modules/box_trigger.lua")),
    ("trigger", include_str!("modules/trigger.lua")),
    ("internal.argparse", include_str!("modules/argparse.lua")),
    ("internal.trigger", include_str!("modules/trigger.lua")),
    ("lycosa.box.tuple", include_str!("modules/box_tuple.lua")),
    ("console", include_str!("modules/console.lua")),
    ("lycosa.expirationd", include_str!("modules/expirationd.lua")),
    ("lycosa.keys", include_str!("modules/keys.lua")),
    ("lycosa.program", include_str!("modules/program.lua")),
    ("lycosa.queue", include_str!("modules/queue/init.lua")),
    ("lycosa.queue.driver", include_str!("modules/queue/driver.lua")),
    ("lycosa.queue.helpers", include_str!("modules/queue/helpers.lua")),
    ("lycosa.queue.tube", include_str!("modules/queue/tube.lua")),
    ("package.reload", include_str!("modules/reload.lua")),
];

/// What Tarantool adds to the libraries `string`, `table`, `os` and `debug`.
const EXTENSIONS: &str = include_str!("modules/extend.lua");

/// Where `require` looks for modules.
const PACKAGE: &str = include_str!("modules/package.lua");

/// What runs first: declares C structures and globals.
const PRELUDE: &str = include_str!("modules/prelude.lua");

/// Puts the modules into `package.preload` and runs the prelude.
pub(crate) fn install(lua: Lua) -> Result<(), Error> {
    push_preload(lua);
    for (name, open) in NATIVE {
        lua.push_function(*open);
        lua.raw_set_field(-2, name);
    }
    for (name, _) in EMBEDDED {
        lua.push_function(load_embedded);
        lua.raw_set_field(-2, name);
    }
    lua.pop(1);
    lua.load(PRELUDE.as_bytes(), "@builtin/prelude.lua")?;
    lua.call(0, 3)?;
    let id = |index: i32| lua.number(index).unwrap_or_default() as u32;
    let types = Types { uuid: id(-3), decimal: id(-2), ..Types::default() };
    lua.shared().types.set(types);
    // The third result holds the metatables of decoded arrays and maps.
    lua.raw_field(-1, "seq");
    let seq = lua.pop_ref();
    lua.raw_field(-1, "map");
    let map = lua.pop_ref();
    *lua.shared().hints.borrow_mut() = Some((seq, map));
    lua.set_top(0);
    lua.load(EXTENSIONS.as_bytes(), "@builtin/extend.lua")?;
    lua.call(0, 0)?;
    lua.load(PACKAGE.as_bytes(), "@builtin/package.lua")?;
    lua.call(0, 0)
}

pub(crate) use boxes::{
    define_box, run_denied, run_invoke, run_replaced, run_session_triggers, run_task_callback,
};
pub(crate) use console::complete;

/// Adds a module in Rust to a state.
pub fn preload(lua: Lua, name: &str, open: Native) {
    push_preload(lua);
    lua.push_function(open);
    lua.raw_set_field(-2, name);
    lua.pop(1);
}

fn push_preload(lua: Lua) {
    lua.push_global("package");
    lua.raw_field(-1, "preload");
    lua.remove(-2);
}

/// Compiles and runs the embedded module that is asked for.
fn load_embedded(lua: Lua) -> Result<i32, Error> {
    let name = lua.text(1).unwrap_or_default();
    let Some((_, source)) = EMBEDDED.iter().find(|(known, _)| *known == name) else {
        return Err(Error::text(format!("no module '{name}' is built in")));
    };
    lua.load(source.as_bytes(), &format!("@builtin/{name}.lua"))?;
    lua.push_str(&name);
    lua.call(1, 1)?;
    Ok(1)
}

/// The microseconds after which something happens, as a deadline; a wait without end for a huge or missing timeout.
pub(crate) fn deadline(lua: Lua, timeout: Option<f64>) -> Option<u64> {
    const LONGEST: f64 = 100.0 * 365.0 * 86400.0;
    let timeout = timeout.filter(|timeout| *timeout < LONGEST)?;
    let delay = (timeout.max(0.0) * 1e6) as u64;
    Some(lua.shared().scheduler.now().saturating_add(delay))
}
