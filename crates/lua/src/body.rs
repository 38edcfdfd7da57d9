//! Whether the text of a stored function is one: evaluated as a Tarantool does when a row of `_func` comes, before it is called.

use std::thread;
use std::time::Duration;

use crate::{Error, Limits, Runtime};

/// What evaluating the text may cost.
const LIMITS: Limits = Limits {
    memory: 64 << 20,
    time_budget: Duration::from_secs(1),
    hook_time_budget: Duration::from_secs(1),
};

/// Evaluates its argument, without any name that it could use.
const CHECK: &str = "\
local text = ...
local chunk, message = loadstring(text)
if not chunk then error(message, 0) end
local value = setfenv(chunk, {})()
if type(value) ~= 'function' then error(\"given body doesn't define a function\", 0) end
";

/// Evaluates `body`, which must be a function, in a state of its own: a running program is not touched. The calling thread waits,
/// for a millisecond or, if the body does not end, for a second.
///
/// # Errors
/// Why it is none, in Tarantool's words.
pub fn check_body(body: &str) -> Result<(), String> {
    let source = format!("return {body}");
    // On a thread, because the caller may itself be on a fiber's stack.
    let checking = thread::Builder::new().name("body".to_owned()).spawn(move || evaluate(source));
    let checked = checking.map_err(|error| format!("no thread to evaluate it: {error}"))?;
    checked.join().unwrap_or_else(|_| Err("it cannot be evaluated".to_owned()))
}

fn evaluate(source: String) -> Result<(), String> {
    let runtime = Runtime::new(LIMITS).map_err(|_| "there is not enough memory to evaluate it".to_owned())?;
    let text = |error: &Error| error.message(runtime.main());
    let fiber = runtime.spawn("body", move |lua| {
        lua.load(CHECK.as_bytes(), "=body")?;
        lua.push_str(&source);
        lua.call(1, 0)?;
        Ok(0)
    });
    let fiber = fiber.map_err(|error| text(&error))?;
    fiber.set_joinable(true);
    runtime.resume_ready(0);
    if !runtime.is_dead(&fiber) {
        return Err("it waits for something".to_owned());
    }
    runtime.result(&fiber)
}

#[cfg(test)]
mod tests {
    use super::check_body;

    #[test]
    fn a_body_is_a_function_and_says_why_it_is_none() {
        for body in ["function() end", " \n function(a) return math.abs(a) end", "function() end, 5"] {
            assert_eq!(check_body(body), Ok(()), "{body}");
        }
        let refused = [
            ("function(", "[string \"return function(\"]:1: <name> or '...' expected near '<eof>'"),
            ("5", "given body doesn't define a function"),
            ("math.abs", "[string \"return math.abs\"]:1: attempt to index global 'math' (a nil value)"),
            ("(\"x\"):rep(3)", "given body doesn't define a function"),
        ];
        for (body, reason) in refused {
            assert_eq!(check_body(body), Err(reason.to_owned()), "{body}");
        }
    }

    #[test]
    fn a_body_that_does_not_end_or_takes_all_memory_is_refused() {
        assert!(check_body("(function() while true do end end)()").is_err());
        assert!(check_body("(\"x\"):rep(1e9)").is_err());
    }
}
