//! A program's parts and its main fiber: the statements before the file, the file, a console.
//!
//! Whose arguments they are, and in which order they are carried out, is as in Tarantool (`tarantool(1)`).

use lycosa_lua::{Error, Lua};

use crate::logging;

/// The program to run.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// The file, `-` for standard input; none if there are only expressions.
    pub file: Option<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The statements before the file, in this order.
    pub first: Vec<First>,
    /// A console follows the file (`-i`).
    pub interactive: bool,
    /// A module `queue` on the path comes before the native queue (`--no-native-queue`).
    pub no_native_queue: bool,
    /// There is no file but the console of a server.
    pub console: Option<Console>,
}

impl Script {
    fn file_and_arguments(&self) -> Vec<Option<&str>> {
        let arguments = self.arguments.iter().map(|argument| Some(argument.as_str()));
        std::iter::once(self.file.as_deref()).chain(arguments).collect()
    }
}

/// A statement before the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// A text (`-e`).
    Text(String),
    /// A module that is required (`-l`).
    Module(String),
}

/// Whose console it is.
#[derive(Debug, Clone, Default)]
pub struct Console {
    /// Where the server listens; empty for this process.
    pub address: String,
    /// The user; guest if absent.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// Exit code of a console that has no server.
const NO_CONNECTION: f64 = 4.0;

/// The main fiber: expressions, modules, the file, a console.
pub(crate) fn run_main(lua: Lua, script: &Script) -> Result<i32, Error> {
    if script.no_native_queue {
        lua.load(b"require('lycosa.program').no_native_queue = true", "=start")?;
        lua.call(0, 0)?;
    }
    call_program(lua, "set_arguments", script.file_and_arguments())?;
    for first in &script.first {
        match first {
            First::Module(name) => call_program(lua, "require", vec![Some(name)])?,
            First::Text(text) => {
                lua.load(text.as_bytes(), "=(command line)")?;
                lua.call(0, 0)?;
            }
        }
    }
    if script.file.is_some() {
        call_program(lua, "run", script.file_and_arguments())?;
    }
    if let Some(console) = &script.console {
        push_function(lua, "console", "attach")?;
        lua.push_str(&console.address);
        for text in [&console.user, &console.password] {
            push(lua, text.as_deref());
        }
        lua.call(3, 2)?;
        let is_done = lua.truth(-2);
        if let Some(message) = lua.text(-1).filter(|_| !is_done) {
            eprintln!("lycosa: {}", logging::one_line(&message));
        }
        lua.push_global("os");
        lua.raw_field(-1, "exit");
        lua.push_number(if is_done { 0.0 } else { NO_CONNECTION });
        lua.call(1, 0)?;
    }
    if script.interactive {
        push_function(lua, "console", "start")?;
        lua.call(0, 0)?;
    }
    Ok(0)
}

/// Calls a function of `lycosa.program`.
fn call_program(lua: Lua, name: &str, arguments: Vec<Option<&str>>) -> Result<(), Error> {
    push_function(lua, "lycosa.program", name)?;
    let count = i32::try_from(arguments.len()).unwrap_or(i32::MAX);
    lua.reserve(count)?;
    arguments.into_iter().for_each(|argument| push(lua, argument));
    lua.call(count, 0)
}

/// Pushes a function of a module, above the module.
fn push_function(lua: Lua, module: &str, name: &str) -> Result<(), Error> {
    lua.push_global("require");
    lua.push_str(module);
    lua.call(1, 1)?;
    lua.raw_field(-1, name);
    Ok(())
}

fn push(lua: Lua, text: Option<&str>) {
    match text {
        Some(text) => lua.push_str(text),
        None => lua.push_nil(),
    }
}
