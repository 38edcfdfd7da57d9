//! `expire`: tuples of a space expire while tasks go through a tube. How long until they are gone, how late, how long the
//! server is held by it, and what the clients of the tube feel.
//!
//! Lycosa deletes by an expiration task; a Tarantool, for comparison, by a fiber in Lua that reads the index from its
//! front, as `expirationd` does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;
use serde_json::{Value as Json, json};

use crate::arguments::ExpireArguments;
use crate::connect;
use crate::contender::{Contender, Program};
use crate::felt::Felt;
use crate::load::{Bound, Load};
use crate::protocol::iproto::{ADMIN_SOCKET, Access, Caller};
use crate::server::Server;
use crate::stolen::Stolen;
use crate::trial::Ground;

/// The space with the tuples.
const SPACE: u32 = 4000;
/// System spaces.
const SPACES: u32 = 280;
const INDEXES: u32 = 288;
/// Tuples that are inserted with one write.
const BATCH: u64 = 2000;
/// Time between two looks how many tuples are left. The load runs in pieces of this length.
const LOOK: Duration = Duration::from_millis(250);
/// So long may the tuples take to go.
const LONGEST: Duration = Duration::from_secs(1800);

/// The cleaner of Tarantool: expired tuples go from the front of the index, or a scan of the whole index finds them.
const CLEANER: &str = "\
local size, is_ordered = ...
local fiber = require('fiber')
local space = box.space.expiring
cleaned = {longest_lag = 0, longest_hold = 0}
local clock = require('clock')
fiber.create(function()
    local key = nil
    while true do
        local began = clock.monotonic()
        local now = fiber.time() * 1000
        local tuples
        if is_ordered then
            tuples = space.index.deadline:select({}, {limit = size})
        elseif key == nil then
            tuples = space.index.primary:select({}, {limit = size})
        else
            tuples = space.index.primary:select({key}, {limit = size, iterator = 'GT'})
        end
        local deleted = 0
        box.begin()
        for _, tuple in ipairs(tuples) do
            key = tuple[1]
            if tuple[3] <= now then
                cleaned.longest_lag = math.max(cleaned.longest_lag, now - tonumber(tuple[3]))
                space:delete(tuple[1])
                deleted = deleted + 1
            elseif is_ordered then
                break
            end
        end
        cleaned.longest_hold = math.max(cleaned.longest_hold, clock.monotonic() - began)
        box.commit()
        if #tuples < size then key = nil end
        if deleted == 0 then fiber.sleep(0.001) else fiber.yield() end
    end
end)";

/// What one contender did.
struct Expired {
    contender: Contender,
    without: Felt,
    with: Felt,
    seconds: f64,
    longest_lag_us: u64,
    longest_hold_us: u64,
    /// By the processor's time, which does not count what the machine gave to other processes; Lycosa only.
    longest_hold_cpu_us: Option<u64>,
    scanned: Option<u64>,
    slices: Option<Slices>,
}

/// How the times that slices took are spread; Lycosa only.
struct Slices {
    count: u64,
    over_1ms: u64,
    p9999_us: u64,
    /// What the longest one did.
    longest: Value,
    /// The longest turn of the loop by the processor's time.
    turn: Value,
}

impl Slices {
    fn json(&self) -> Json {
        let Self { count, over_1ms, p9999_us, longest, turn } = self;
        let number = |map: &Value, name: &str| map.get(name).and_then(Value::as_u64);
        json!({
            "count": count,
            "over_1ms": over_1ms,
            "p9999_us": p9999_us,
            "longest": {
                "us": number(longest, "us"), "cpu_us": number(longest, "cpu_us"),
                "commit_us": number(longest, "commit_us"), "expired": number(longest, "expired"),
            },
            "longest_turn": {
                "us": number(turn, "us"), "cpu_us": number(turn, "cpu_us"),
                "part": turn.get("part").and_then(Value::as_str),
            },
        })
    }

    fn text(&self) -> String {
        let number = |map: &Value, name: &str| map.get(name).and_then(Value::as_u64).unwrap_or_default();
        let Self { count, over_1ms, p9999_us, longest, turn } = self;
        format!(
            "{over_1ms} of {count} slices took more than 1 ms of the processor, and 99.99 % at most {p9999_us} µs; the longest \
             deleted {} tuples and spent {} µs on its commit; of the longest turn ({} µs) most was {}",
            number(longest, "expired"),
            number(longest, "commit_us"),
            number(turn, "cpu_us"),
            turn.get("part").and_then(Value::as_str).unwrap_or("nothing")
        )
    }
}

pub(crate) fn expire(arguments: &ExpireArguments, server: Option<&Path>) -> Result<()> {
    let ground = arguments.servers.ground(arguments.servers.files(server))?;
    let machine = Stolen::measure(ground.cores, arguments.machine)?;
    if !arguments.json {
        println!("{}", machine.text());
    }
    for &contender in &arguments.contenders {
        ensure!(
            matches!(contender.program, Program::Lycosa(_) | Program::Tarantool(_) | Program::TarantoolLua),
            "{contender} has no spaces"
        );
        let result = measure(&ground, arguments, contender)?;
        if arguments.json {
            let mut json = result.json(arguments);
            json["machine"] = machine.json();
            println!("{json}");
        } else {
            println!("{}", result.text(arguments));
        }
    }
    Ok(())
}

fn measure(ground: &Ground, arguments: &ExpireArguments, contender: Contender) -> Result<Expired> {
    let mut server = Server::start(|place| ground.command(contender, place), &ground.folder, ground.cores)?;
    let measured = measure_on(&server, arguments, contender);
    let result = measured.map_err(|error| server.explain(error))?;
    server.stop_process()?;
    Ok(result)
}

/// A connection of either kind.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn measure_on(server: &Server, arguments: &ExpireArguments, contender: Contender) -> Result<Expired> {
    let is_lycosa = matches!(contender.program, Program::Lycosa(_));
    // Once the server answers, its administrator's socket exists.
    let protocol = contender.protocol(&Access::Own);
    protocol.prepare(server.address())?;
    let stream: Box<dyn Stream> = match is_lycosa {
        true => Box::new(UnixStream::connect(server.data().join(ADMIN_SOCKET))?),
        false => Box::new(connect(server.address())?),
    };
    let mut admin = Caller::new(stream, None)?;
    let shape = arguments.shape();
    let mut load = Load::connect(&*protocol, server.address(), shape, 100)?;
    make_space(&mut admin, arguments.scan)?;
    let first = fill(&mut admin, arguments)?;
    rustix::fs::sync();
    Felt::of(&mut load, arguments.warmup(), shape)?;
    let without = Felt::of(&mut load, arguments.baseline(), shape)?;

    start(&mut admin, arguments, is_lycosa)?;
    let began = match arguments.spread {
        None => Instant::now(),
        Some(_) => {
            Instant::now() + (UNIX_EPOCH + first).duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    let mut with = Felt::default();
    loop {
        with.add(Felt::of(&mut load, Bound::For(LOOK), shape)?)?;
        if left(&mut admin, is_lycosa, arguments)? == 0 {
            break;
        }
        ensure!(began.elapsed() < LONGEST, "tuples are left after {} s", LONGEST.as_secs());
    }
    let seconds = began.elapsed().as_secs_f64();
    let Told { longest_lag_us, longest_hold_us, longest_hold_cpu_us, scanned, slices } =
        told(&mut admin, is_lycosa)?;
    Ok(Expired {
        contender,
        without,
        with,
        seconds,
        longest_lag_us,
        longest_hold_us,
        longest_hold_cpu_us,
        scanned,
        slices,
    })
}

fn make_space<S: Read + Write>(admin: &mut Caller<S>, scan: bool) -> Result<()> {
    let array = |values: Vec<Value>| Value::Array(values);
    let unique = |unique: bool| Value::map([("unique", unique)]);
    let row = array(vec![
        SPACE.into(),
        1_u32.into(),
        "expiring".into(),
        "memtx".into(),
        0_u32.into(),
        Value::Map(vec![]),
        array(vec![]),
    ]);
    insert(admin, SPACES, &row)?;
    let index = |id: u32, name: &str, field: u32, is_unique| {
        let parts = array(vec![array(vec![field.into(), "unsigned".into()])]);
        array(vec![SPACE.into(), id.into(), name.into(), "tree".into(), unique(is_unique), parts])
    };
    insert(admin, INDEXES, &index(0, "primary", 0, true))?;
    if !scan {
        insert(admin, INDEXES, &index(1, "deadline", 2, false))?;
    }
    Ok(())
}

fn insert<S: Read + Write>(admin: &mut Caller<S>, space: u32, row: &Value) -> Result<()> {
    admin.request(&Body::Insert { space, tuple: &row.encode() })?.map(drop)
}

/// Inserts the tuples. Returns the first deadline, since the epoch.
fn fill<S: Read + Write>(admin: &mut Caller<S>, arguments: &ExpireArguments) -> Result<Duration> {
    const SLOWEST: u64 = 100_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = match arguments.spread {
        None => Duration::from_secs(1_000_000_000),
        Some(_) => now + Duration::from_secs(3 + arguments.tuples / SLOWEST) + arguments.before(),
    };
    let spread = arguments.spread.unwrap_or_default().as_millis();
    let mut tuples = Vec::new();
    let mut id = 0;
    while id < arguments.tuples {
        tuples.clear();
        let until = arguments.tuples.min(id + BATCH);
        for number in id..until {
            // Neighbours by id are no neighbours by deadline.
            let place = u128::from(number) * 7_919 % u128::from(arguments.tuples);
            let offset = u64::try_from(spread * place / u128::from(arguments.tuples)).unwrap_or_default();
            let deadline = u64::try_from(first.as_millis()).unwrap_or_default() + offset;
            let row = vec![number.into(), format!("user{number}@example.org").into(), deadline.into()];
            tuples.push(Value::Array(row).encode());
        }
        let bodies = tuples.iter().map(|tuple| Body::Insert { space: SPACE, tuple });
        admin.many(bodies)?;
        id = until;
    }
    if arguments.spread.is_some() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ensure!(now + arguments.before() < first, "the tuples were not inserted before the first deadline");
    }
    Ok(first)
}

fn start<S: Read + Write>(admin: &mut Caller<S>, arguments: &ExpireArguments, is_lycosa: bool) -> Result<()> {
    if !is_lycosa {
        let arguments = Value::Array(vec![1024_u32.into(), Value::Bool(!arguments.scan)]);
        let body = Body::Eval { text: CLEANER.as_bytes(), args: &arguments.encode() };
        return admin.request(&body)?.map(drop);
    }
    let mut options = vec![
        ("field".into(), 3_u32.into()),
        ("unit".into(), "ms".into()),
        ("scan_time".into(), arguments.scan_time.into()),
    ];
    if let Some(microseconds) = arguments.budget_us {
        options.push(("budget_us".into(), microseconds.into()));
    }
    if let Some(percent) = arguments.share {
        options.push(("share".into(), percent.into()));
    }
    let values = Value::Array(vec!["bench".into(), SPACE.into(), Value::Map(options)]);
    admin.call("expiration.start", &values.encode())?.map(drop)
}

/// How many tuples are left.
fn left<S: Read + Write>(admin: &mut Caller<S>, is_lycosa: bool, arguments: &ExpireArguments) -> Result<u64> {
    if is_lycosa {
        return Ok(arguments.tuples.saturating_sub(statistic(&statistics(admin)?, "expired")?));
    }
    let length = evaluate(admin, "return box.space.expiring:len()")?;
    length.first().and_then(Value::as_u64).context("a length is a number")
}

fn statistics<S: Read + Write>(admin: &mut Caller<S>) -> Result<Value> {
    let values = admin.call("expiration.stats", &Value::Array(vec!["bench".into()]).encode())??;
    let values = Value::decode(&values)?;
    let statistics = values.as_array().and_then(|values| values.first()).cloned();
    let statistics = statistics.context("no statistics")?;
    if let Some(error) = statistics.get("error").and_then(Value::as_str) {
        bail!("the expiration task fails: {error}");
    }
    Ok(statistics)
}

fn statistic(statistics: &Value, name: &str) -> Result<u64> {
    statistics.get(name).and_then(Value::as_u64).with_context(|| format!("the statistics have no {name}"))
}

fn evaluate<S: Read + Write>(admin: &mut Caller<S>, expression: &str) -> Result<Vec<Value>> {
    let values = admin.request(&Body::Eval { text: expression.as_bytes(), args: &[0x90] })??;
    Ok(Value::decode(&values)?.as_array().unwrap_or_default().to_vec())
}

/// What the server tells of its cleaning.
struct Told {
    longest_lag_us: u64,
    longest_hold_us: u64,
    longest_hold_cpu_us: Option<u64>,
    scanned: Option<u64>,
    slices: Option<Slices>,
}

fn told<S: Read + Write>(admin: &mut Caller<S>, is_lycosa: bool) -> Result<Told> {
    if is_lycosa {
        let statistics = statistics(admin)?;
        let number = |name| statistic(&statistics, name);
        return Ok(Told {
            longest_lag_us: number("longest_lag_us")?,
            longest_hold_us: number("longest_hold_us")?,
            longest_hold_cpu_us: number("longest_hold_cpu_us").ok(),
            scanned: Some(number("scanned")?),
            slices: Some(Slices {
                count: number("slices")?,
                over_1ms: number("slices_over_1ms")?,
                p9999_us: number("hold_p9999_us")?,
                longest: statistics.get("longest_slice").cloned().unwrap_or(Value::Nil),
                turn: longest_turn(admin)?,
            }),
        });
    }
    let told = evaluate(
        admin,
        "return math.floor(cleaned.longest_lag * 1000), math.floor(cleaned.longest_hold * 1000000)",
    )?;
    let number = |place: usize| told.get(place).and_then(Value::as_u64).unwrap_or_default();
    Ok(Told {
        longest_lag_us: number(0),
        longest_hold_us: number(1),
        longest_hold_cpu_us: None,
        scanned: None,
        slices: None,
    })
}

fn longest_turn<S: Read + Write>(admin: &mut Caller<S>) -> Result<Value> {
    let values = Value::decode(&admin.call("box.info", &[0x90])??)?;
    let info = values.as_array().and_then(|values| values.first());
    Ok(info.and_then(|info| info.get("longest_turn_cpu")).cloned().unwrap_or(Value::Nil))
}

impl Expired {
    fn json(&self, arguments: &ExpireArguments) -> Json {
        json!({
            "contender": self.contender.to_string(),
            "tuples": arguments.tuples,
            "mode": if arguments.scan { "scan" } else { "indexed" },
            "spread_seconds": arguments.spread.map(|spread| spread.as_secs_f64()),
            "seconds": self.seconds,
            "longest_lag_us": self.longest_lag_us,
            "longest_hold_us": self.longest_hold_us,
            "longest_hold_cpu_us": self.longest_hold_cpu_us,
            "scanned": self.scanned,
            "slices": self.slices.as_ref().map(Slices::json),
            "without": self.without.json(),
            "with": self.with.json(),
        })
    }

    fn text(&self, arguments: &ExpireArguments) -> String {
        let lag = match arguments.spread {
            Some(_) => format!(", {:.1} ms late at the most", self.longest_lag_us as f64 / 1e3),
            None => String::new(),
        };
        let mut text = format!(
            "{}: {} tuples gone after {:.2} s{lag}; a slice held the loop for {} µs at the most",
            self.contender, arguments.tuples, self.seconds, self.longest_hold_us
        );
        if let Some(microseconds) = self.longest_hold_cpu_us {
            text += &format!(", and took {microseconds} µs of the processor at the most");
        }
        if let Some(spread) = &self.slices {
            text += &format!("\n{}", spread.text());
        }
        text + "\n" + &self.without.text("without") + "\n" + &self.with.text("with")
    }
}
