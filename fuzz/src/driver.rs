//! Runs targets on changed inputs for a while, and says what broke.
//!
//! One thread does the work, so that a seed leads to the same inputs on every machine; another watches it for inputs that
//! take too long. An input that breaks a target is made smaller as long as it breaks it at the same place, and saved.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Target;
use crate::feature;
use crate::mutation::mutate;
use crate::random::Random;

/// An input that takes longer breaks a target too: nothing may take so long for so few bytes.
const SLOW: Duration = Duration::from_secs(10);

/// Inputs that are kept for changing them further.
const MOST_KEPT: usize = 1 << 14;

/// How often an input is made smaller before it is reported.
const SMALLER_TRIES: usize = 2000;

/// A target that broke.
#[derive(Debug)]
pub struct Broken {
    /// Its name.
    pub target: &'static str,
    /// The seed of the run.
    pub seed: u64,
    /// Where and why it panicked.
    pub message: String,
    /// The smallest input that was found.
    pub input: Vec<u8>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Inputs.
    pub inputs: u64,
    /// Of these, those that did something new and were kept.
    pub kept: usize,
}

/// Runs a target on its corpus and then on changed inputs until `time` is over.
///
/// # Errors
/// The corpus cannot be read.
pub fn run(target: &'static Target, seed: u64, time: Duration) -> Result<Result<Totals, Box<Broken>>> {
    let mut pool = (target.seeds)().with_context(|| format!("the corpus of {}", target.name))?;
    let watch = Watch::start(target.name, seed);
    let mut random = Random::new(seed);
    let mut known = HashSet::new();
    let mut totals = Totals::default();
    let broken = |message, input| Ok(Err(Box::new(reduced(target, seed, message, input, &watch))));
    for input in &pool {
        totals.inputs += 1;
        if let Err(message) = watch.execute(target, input) {
            return broken(message, input.clone());
        }
        known.extend(feature::take());
    }
    let end = Instant::now() + time;
    while Instant::now() < end {
        let base = random.pick(&pool);
        let input = mutate(&mut random, base, &pool, target.shape);
        totals.inputs += 1;
        if let Err(message) = watch.execute(target, &input) {
            return broken(message, input);
        }
        let features = feature::take();
        if pool.len() < MOST_KEPT && !features.is_subset(&known) {
            known.extend(features);
            pool.push(input);
            totals.kept += 1;
        }
    }
    Ok(Ok(totals))
}

/// Runs a target on one input; the panic's place and text if it breaks.
///
/// # Errors
/// That place and text.
pub fn execute(target: &Target, input: &[u8]) -> Result<(), String> {
    thread_local! {
        static PANIC: RefCell<String> = RefCell::default();
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let text = info.payload_as_str().unwrap_or("a panic without a text");
            PANIC.set(format!("{place}: {text}"));
        }));
    });
    panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| PANIC.take())
}

/// The place of a panic, without its text.
fn place(message: &str) -> &str {
    message.split(": ").next().unwrap_or(message)
}

/// The same fault with an input that is smaller, if one is found.
fn reduced(
    target: &'static Target,
    seed: u64,
    mut message: String,
    mut input: Vec<u8>,
    watch: &Watch,
) -> Broken {
    let mut random = Random::new(seed);
    let wanted = place(&message).to_owned();
    for _ in 0..SMALLER_TRIES {
        let mut parts = target.shape.parts(&input);
        let at = random.below(parts.len().max(1));
        if parts.len() > 1 && random.one_in(2) {
            let end = (at + 1 + random.small(parts.len())).min(parts.len());
            parts.drain(at..end);
        } else if let Some(part) = parts.get_mut(at) {
            let range = random.range(part.content.len());
            part.content.drain(range);
        }
        let smaller = target.shape.join(&parts);
        if smaller.len() < input.len()
            && let Err(found) = watch.execute(target, &smaller)
            && place(&found) == wanted
        {
            (input, message) = (smaller, found);
        }
    }
    Broken { target: target.name, seed, message, input }
}

/// Saves an input that breaks a target and returns where.
///
/// # Errors
/// The folder cannot be written.
pub fn save(target: &str, input: &[u8]) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts");
    fs::create_dir_all(&folder)?;
    let digest = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, &byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = folder.join(format!("{target}-{digest:016x}"));
    fs::write(&path, input).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// What is being worked on, since when.
type Current = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

/// Watches a target for an input that takes too long, and ends the process on one.
struct Watch {
    current: Current,
}

impl Watch {
    fn start(target: &'static str, seed: u64) -> Watch {
        let current = Current::default();
        let watched = Arc::downgrade(&current);
        std::thread::spawn(move || {
            while let Some(current) = watched.upgrade() {
                let slow = current
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take_if(|(since, _)| since.elapsed() > SLOW);
                drop(current);
                if let Some((_, input)) = slow {
                    let saved = save(target, &input)
                        .map_or_else(|error| error.to_string(), |path| path.display().to_string());
                    eprintln!("{target} takes longer than {SLOW:?} (seed {seed}); the input: {saved}");
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Watch { current }
    }

    fn execute(&self, target: &Target, input: &[u8]) -> Result<(), String> {
        let set = |value| *self.current.lock().unwrap_or_else(PoisonError::into_inner) = value;
        set(Some((Instant::now(), input.to_vec())));
        let outcome = execute(target, input);
        set(None);
        outcome
    }
}
