//! The keys of functional indexes: what a function of `_func` returns for a tuple.
//!
//! The store asks in the midst of a statement, and while it reads a data folder on threads of its own. So these functions run in
//! a state of their own, on a thread beside each thread that asks: what a thread knows of its Lua (the end of the stack, the
//! watchdog) is of one state. The state has `box.tuple` and what a sandboxed function may see, but no instance and none of
//! the program's globals. Thread and state are made when the first key is, and end with the thread that asks.
//!
//! A call may not wait, and ends with an error after the time of [`LIMITS`].

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use lycosa_instance::Instance;
use lycosa_store::{KeyFault, KeyFunction};
use lycosa_tuple::format::Format;
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::EncodeOptions;
use crate::api::Lua;
use crate::error::Error;
use crate::fiber::Ticket;
use crate::host::{Host, Input};
use crate::runtime::{Limits, Runtime};

/// What a call may cost.
const LIMITS: Limits = Limits {
    memory: 64 << 20,
    time_budget: Duration::from_secs(1),
    hook_time_budget: Duration::from_secs(1),
};

/// The module with the functions.
const MODULE: &str = "lycosa.keys";

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// A tuple whose keys are asked for.
struct Question {
    function: Arc<KeyFunction>,
    /// Names of the fields, if they are others than those of the tuple before.
    names: Option<Vec<Arc<str>>>,
    tuple: Vec<u8>,
}

type Answer = Result<Vec<u8>, KeyFault>;

/// The thread that calls functions for another one.
struct Worker {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    /// Names of the fields of the last tuple.
    names: Vec<Arc<str>>,
}

/// A state for the functions of indexes.
struct Keys {
    runtime: Runtime,
}

/// The results of the function for a tuple of a space with this format, as a MessagePack array; a [`KeyMaker`] for the
/// store. The first call of a thread takes some milliseconds, another one two switches of threads and what the function takes.
///
/// [`KeyMaker`]: lycosa_store::KeyMaker
///
/// # Errors
/// The function failed, or returned a value that has no place in a tuple.
pub fn make_keys(function: &Arc<KeyFunction>, format: &Format, tuple: &[u8]) -> Answer {
    WORKER.with_borrow_mut(|worker| {
        let failed = |text: String| KeyFault::Raised(format!("no thread to evaluate the function: {text}"));
        let mut present = match worker.take() {
            Some(present) => present,
            None => Worker::start().map_err(|error| failed(error.to_string()))?,
        };
        let names = present.changed_names(format);
        let question = Question { function: function.clone(), names, tuple: tuple.to_vec() };
        present.questions.send(question).map_err(|error| failed(error.to_string()))?;
        let answer = present.answers.recv().map_err(|error| failed(error.to_string()))?;
        *worker = Some(present);
        answer
    })
}

impl Worker {
    fn start() -> std::io::Result<Self> {
        let (questions, asked) = channel::<Question>();
        let (told, answers) = channel();
        thread::Builder::new().name("index-keys".to_owned()).spawn(move || {
            let mut state: Result<Keys, String> = Keys::new();
            let mut names = Vec::new();
            while let Ok(question) = asked.recv() {
                if let Some(changed) = &question.names {
                    names.clone_from(changed);
                }
                let answer = match &state {
                    Ok(keys) => keys.make(question),
                    Err(text) => Some(Err(KeyFault::Raised(text.clone()))),
                };
                // A function that waits keeps its stack for ever: the next one gets another state.
                let answer = answer.unwrap_or_else(|| {
                    state = Keys::new().and_then(|keys| keys.set_names(&names).map(|()| keys));
                    Err(KeyFault::Raised("the function of an index may not wait".to_owned()))
                });
                if told.send(answer).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { questions, answers, names: Vec::new() })
    }

    /// The names of the fields, if they are others than those of the last call.
    fn changed_names(&mut self, format: &Format) -> Option<Vec<Arc<str>>> {
        let fields = format.fields();
        let is_same = fields.len() == self.names.len()
            && fields.iter().zip(&self.names).all(|(field, name)| *field.name == **name);
        if is_same {
            return None;
        }
        self.names = fields.iter().map(|field| Arc::from(&*field.name)).collect();
        Some(self.names.clone())
    }
}

impl Keys {
    fn new() -> Result<Self, String> {
        let runtime =
            Runtime::new(LIMITS).map_err(|_| "there is not enough memory to evaluate it".to_owned())?;
        let broken = |error: &Error| error.message(runtime.main());
        runtime.attach(Rc::new(Nothing)).map_err(|error| broken(&error))?;
        Ok(Self { runtime })
    }

    /// Runs `work` in a fiber; `None` if it waits for something.
    fn run<T: 'static>(
        &self,
        work: impl FnOnce(Lua) -> Result<T, KeyFault> + 'static,
    ) -> Option<Result<T, KeyFault>> {
        let outcome = Rc::new(RefCell::new(None));
        let told = outcome.clone();
        let spawned = self.runtime.spawn("index", move |lua| {
            *told.borrow_mut() = Some(work(lua));
            Ok(0)
        });
        let fiber = match spawned {
            Ok(fiber) => fiber,
            Err(error) => return Some(Err(KeyFault::Raised(error.message(self.runtime.main())))),
        };
        self.runtime.resume_ready(0);
        if !self.runtime.is_dead(&fiber) {
            return None;
        }
        let ended = || Err(KeyFault::Raised("the function did not end".to_owned()));
        let outcome = outcome.borrow_mut().take();
        Some(outcome.unwrap_or_else(ended))
    }

    /// The answer; `None` if the function waits for something.
    fn make(&self, question: Question) -> Option<Answer> {
        self.run(move |lua| {
            if let Some(names) = &question.names {
                set_names(lua, names)?;
            }
            call(lua, &question.function, &question.tuple)
        })
    }

    fn set_names(&self, names: &[Arc<str>]) -> Result<(), String> {
        let names = names.to_vec();
        match self.run(move |lua| set_names(lua, &names)) {
            Some(Err(KeyFault::Raised(text) | KeyFault::Unreadable(text))) => Err(text),
            _ => Ok(()),
        }
    }
}

/// Tells the names of the fields of tuples from now on.
fn set_names(lua: Lua, names: &[Arc<str>]) -> Result<(), KeyFault> {
    let raised = |error: Error| KeyFault::Raised(error.message(lua));
    lua.reserve(8).map_err(raised)?;
    lua.new_table(names.len(), 0);
    for (number, name) in (1..).zip(names) {
        lua.push_str(&**name);
        lua.raw_set_item(-2, number);
    }
    lua.call_module(MODULE, "set_names", 1, 0).map_err(raised)
}

/// Calls the function in its fiber.
fn call(lua: Lua, function: &KeyFunction, tuple: &[u8]) -> Answer {
    let raised = |error: Error| KeyFault::Raised(error.message(lua));
    lua.reserve(8).map_err(raised)?;
    let top = lua.top();
    lua.push_number(function.identity as f64);
    lua.push_tuple_of(1, tuple).map_err(raised)?;
    lua.push_str(&function.name);
    lua.push_str(&function.body);
    lua.push_bool(function.is_sandboxed);
    lua.call_module(MODULE, "call", 5, -1).map_err(raised)?;
    let count = lua.top() - top;
    let mut out = Vec::with_capacity(32);
    mp::write_array(&mut out, count as u32);
    for place in top + 1..=top + count {
        let encoded = match lua.tuple(place) {
            Some(tuple) => {
                out.extend_from_slice(tuple);
                Ok(())
            }
            None => lua.encode_with(place, &mut out, &EncodeOptions::DEFAULT),
        };
        encoded.map_err(|error| KeyFault::Unreadable(error.message(lua)))?;
    }
    Ok(out)
}

/// The surroundings of functions that have no instance.
struct Nothing;

impl Host for Nothing {
    fn instance(&self) -> Option<RefMut<'_, Instance>> {
        None
    }

    fn touch(&self) {}

    fn waits_for_nothing(&self) -> bool {
        true
    }

    fn configure(&self, _: &[(String, Value)], _: Ticket) -> Result<bool, String> {
        Err("the function of an index has no instance".to_owned())
    }

    fn configured(&self) -> Result<(), String> {
        Err("the function of an index has no instance".to_owned())
    }

    fn listening(&self) -> Option<String> {
        None
    }

    fn watch_sessions(&self, _: bool, _: bool) {}

    fn log_to(&self, _: &str) -> Result<(), String> {
        Err("the function of an index does not change the log".to_owned())
    }

    fn log_as(&self, _: usize, _: bool) {}

    fn option(&self, _: &str) -> Option<Value> {
        None
    }

    fn data_dir(&self) -> String {
        ".".to_owned()
    }

    fn reopen_log(&self) -> Result<(), String> {
        Ok(())
    }

    fn exit(&self, _: i32) {}

    fn read_line(&self, _: Ticket, _: &str) -> Option<Input> {
        Some(Input::End)
    }

    fn remember(&self, _: &str) {}
}
