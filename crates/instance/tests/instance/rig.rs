//! The surroundings of an instance in these tests: connections, a journal that follows the test's orders, and time.

use lycosa_instance::{Batch, Buffers, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust};
use lycosa_iproto::auth;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::greeting::Greeting;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, AuthTuple, Body};
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Configuration, Queue};
use lycosa_store::Store;
use lycosa_tuple::value::Value;
use uuid::Uuid;

/// One second in microseconds.
pub(crate) const SECOND: u64 = 1_000_000;

/// Length of a greeting.
const GREETING_SIZE: usize = 128;

/// An array of values of different types.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        lycosa_tuple::value::Value::Array(vec![$(lycosa_tuple::value::Value::from($value)),*])
    };
}

/// A map with texts for keys.
macro_rules! options {
    ($($name:ident: $value:expr),* $(,)?) => {
        lycosa_tuple::value::Value::Map(vec![$((
            lycosa_tuple::value::Value::from(stringify!($name)),
            lycosa_tuple::value::Value::from($value),
        )),*])
    };
}

pub(crate) use {options, values};

/// Values of a reply that says OK, or the error.
pub(crate) type Answer = Result<Vec<Value>, ErrorObject>;

/// A reply as it left.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) sync: u64,
    pub(crate) schema_version: u64,
    pub(crate) answer: Answer,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) slot: ConnectionSlot,
    pub(crate) salt: [u8; 32],
    last_sync: u64,
}

/// An instance with its time and its settings.
pub(crate) struct Rig {
    pub(crate) instance: Instance,
    /// Microseconds since the epoch.
    pub(crate) now: u64,
    pub(crate) settings: Settings,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Rig {
        Rig::over(settings, &mut |_| {})
    }

    /// An instance over a new store that `prepare` has filled.
    pub(crate) fn over(settings: Settings, prepare: &mut dyn FnMut(&mut Store)) -> Rig {
        let mut rig = Rig::not_started(settings, prepare);
        rig.instance.start(rig.now).expect("the queue starts on a new store");
        rig.sync_journal();
        rig
    }

    /// The same, on which no queue has started yet: as on a replica.
    pub(crate) fn not_started(settings: Settings, prepare: &mut dyn FnMut(&mut Store)) -> Rig {
        let identity = Identity {
            instance: Uuid::from_bytes([0x11; 16]),
            cluster: Uuid::from_bytes([0x22; 16]),
            replica_id: 1,
        };
        let mut store = Store::new(lycosa_store::Settings::default());
        let (cluster, instance) = (identity.cluster.to_string(), identity.instance.to_string());
        store.bootstrap(&cluster, &instance).expect("a new store takes the first rows");
        prepare(&mut store);
        let mut sessions = 0_u128;
        let new_session_id = Box::new(move || {
            sessions += 1;
            sessions.to_be_bytes()
        });
        let queue = Queue::new(Configuration::default(), new_session_id);
        let now = 1_700_000_000 * SECOND;
        let instance = Instance::new(settings.clone(), identity, process(), store, queue, Vclock::new(), now);
        Rig { instance, now, settings }
    }

    /// Someone connects and reads the greeting.
    pub(crate) fn connect(&mut self, trust: Trust) -> Client {
        let origin = Origin { peer: "127.0.0.1:40000".to_owned(), trust };
        let slot = self.instance.connect(origin, self.now).expect("there is room for a connection");
        let greeting: [u8; GREETING_SIZE] =
            self.instance.output(slot).try_into().expect("a greeting and nothing else");
        self.instance.consume(slot, GREETING_SIZE);
        assert!(self.ready().contains(&slot), "the greeting is to be written");
        let salt = Greeting::decode(&greeting).expect("a greeting").salt;
        Client { slot, salt, last_sync: 0 }
    }

    pub(crate) fn admin(&mut self) -> Client {
        self.connect(Trust::Admin)
    }

    pub(crate) fn guest(&mut self) -> Client {
        self.connect(Trust::Loopback)
    }

    pub(crate) fn stranger(&mut self) -> Client {
        self.connect(Trust::Nobody)
    }

    /// A connection that another member of the group passes on.
    pub(crate) fn forwarded(&mut self) -> Client {
        let (salt, origin) = ([0; 32], Origin { peer: "127.0.0.1:40000".to_owned(), trust: Trust::Loopback });
        let slot =
            self.instance.connect_forwarded(origin, salt, self.now).expect("there is room for a connection");
        Client { slot, salt, last_sync: 0 }
    }

    /// A connection that has logged in.
    pub(crate) fn login(&mut self, user: &str, password: &str) -> Client {
        let mut client = self.stranger();
        self.auth(&mut client, user, password).expect("the password is right");
        client
    }

    pub(crate) fn disconnect(&mut self, client: &Client) {
        self.instance.disconnect(client.slot, self.now);
    }

    /// Sends a request and returns its `sync`.
    pub(crate) fn send(&mut self, client: &mut Client, body: &Body<'_>) -> u64 {
        client.last_sync += 1;
        let mut frame = Vec::new();
        request::encode(&mut frame, client.last_sync, body);
        self.send_bytes(client, &frame);
        client.last_sync
    }

    /// Sends whole frames as they are, their lengths included.
    pub(crate) fn send_bytes(&mut self, client: &Client, mut bytes: &[u8]) {
        while let Split::Frame { content, consumed } = split(bytes, DEFAULT_LIMIT).expect("frames") {
            self.handle_frame(client, content);
            bytes = &bytes[consumed..];
        }
    }

    /// Hands over the content of a frame, as the server does.
    pub(crate) fn handle_frame(&mut self, client: &Client, content: &[u8]) {
        if let Err(broken) = self.instance.handle_frame(client.slot, content, self.now) {
            self.instance.refuse(client.slot, &broken);
        }
    }

    /// The replies that may leave, in order, read from the connection.
    pub(crate) fn replies(&mut self, client: &Client) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut bytes = Vec::new();
        while let ready = self.instance.output(client.slot)
            && !ready.is_empty()
        {
            let length = ready.len();
            bytes.extend_from_slice(ready);
            self.instance.consume(client.slot, length);
        }
        let mut rest = bytes.as_slice();
        while let Split::Frame { content, consumed } = split(rest, DEFAULT_LIMIT).expect("frames") {
            replies.push(decoded(content));
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty(), "whole replies leave");
        replies
    }

    /// Gives the journal what there is and makes all of it durable.
    pub(crate) fn sync_journal(&mut self) {
        while let Some(batch) = self.instance.poll_append() {
            self.make_durable(batch);
        }
    }

    /// The journal has written a batch.
    pub(crate) fn make_durable(&mut self, batch: Batch) {
        let buffers = Buffers { rows: batch.rows, ends: batch.ends };
        self.instance.handle_durable(batch.lsn, buffers);
    }

    /// The batch that the turn has filled.
    pub(crate) fn batch(&mut self) -> Batch {
        self.instance.poll_append().expect("rows to journal")
    }

    /// Sends a request, makes everything durable, and returns the only reply.
    pub(crate) fn ask(&mut self, client: &mut Client, body: &Body<'_>) -> Answer {
        let sync = self.send(client, body);
        self.sync_journal();
        let mut replies = self.replies(client);
        assert_eq!(replies.len(), 1, "one reply: {replies:?}");
        let reply = replies.remove(0);
        assert_eq!(reply.sync, sync);
        reply.answer
    }

    /// CALL.
    pub(crate) fn call(&mut self, client: &mut Client, name: &str, args: &Value) -> Answer {
        self.ask(client, &Body::Call { name: name.as_bytes(), args: &args.encode() })
    }

    /// CALL without waiting for anything; its `sync`.
    pub(crate) fn start_call(&mut self, client: &mut Client, name: &str, args: &Value) -> u64 {
        self.send(client, &Body::Call { name: name.as_bytes(), args: &args.encode() })
    }

    /// INSERT.
    pub(crate) fn insert(&mut self, client: &mut Client, space: u32, tuple: &Value) -> Answer {
        self.ask(client, &Body::Insert { space, tuple: &tuple.encode() })
    }

    /// SELECT of everything with a key in an index.
    pub(crate) fn select(&mut self, client: &mut Client, space: u32, index: u32, key: &Value) -> Answer {
        let (limit, offset, iterator) = (u32::MAX, 0, 0);
        let key = &key.encode();
        self.ask(client, &Body::Select { space, index, limit, offset, iterator, key })
    }

    /// PING.
    pub(crate) fn ping(&mut self, client: &mut Client) -> Answer {
        self.ask(client, &Body::Ping)
    }

    /// AUTH with a password.
    pub(crate) fn auth(&mut self, client: &mut Client, user: &str, password: &str) -> Answer {
        let scramble = auth::scramble(password.as_bytes(), &client.salt);
        let scramble = AuthTuple::ChapSha1(&scramble);
        self.ask(client, &Body::Auth { user: user.as_bytes(), scramble })
    }

    /// Lets time pass and handles expired deadlines. Returns the next deadline.
    pub(crate) fn advance(&mut self, microseconds: u64) -> Option<u64> {
        self.now += microseconds;
        self.instance.tick(self.now)
    }

    /// Makes a user who may log in and nothing else.
    pub(crate) fn create_user(&mut self, name: &str, password: &str) {
        let mut admin = self.admin();
        let made =
            self.call(&mut admin, "box.schema.user.create", &values![name, options! { password: password }]);
        assert_eq!(made, Ok(vec![]));
        self.disconnect(&admin);
    }

    pub(crate) fn grant(&mut self, user: &str, privileges: &str, object_type: &str, object: &str) {
        let mut admin = self.admin();
        let granted =
            self.call(&mut admin, "box.schema.user.grant", &values![user, privileges, object_type, object]);
        assert_eq!(granted, Ok(vec![]));
        self.disconnect(&admin);
    }

    /// Makes a tube.
    pub(crate) fn create_tube(&mut self, name: &str, kind: &str) {
        let mut admin = self.admin();
        self.call(&mut admin, "queue.create_tube", &values![name, kind]).expect("a tube");
        self.disconnect(&admin);
    }

    /// Makes a space with a primary key on its first field.
    pub(crate) fn create_space(&mut self, id: u32, name: &str, flags: Value) {
        let mut admin = self.admin();
        let row = values![id, 1, name, "memtx", 0, flags, values![]];
        self.insert(&mut admin, 280, &row).expect("a space");
        let row = values![id, 0, "pk", "tree", options! { unique: true }, values![values![0, "unsigned"]]];
        self.insert(&mut admin, 288, &row).expect("an index");
        self.disconnect(&admin);
    }

    /// The connections that have something to write.
    pub(crate) fn ready(&mut self) -> Vec<ConnectionSlot> {
        let mut slots: Vec<_> = std::iter::from_fn(|| self.instance.poll_ready()).collect();
        slots.sort_unstable();
        slots
    }
}

fn decoded(frame: &[u8]) -> Reply {
    let reply = reply::decode(frame).expect("a reply");
    let answer = match reply.content {
        Content::Ok { data, .. } => match Value::decode(data) {
            Ok(Value::Array(values)) => Ok(values),
            other => panic!("data is an array, not {other:?}"),
        },
        Content::Error(error) => Err(error),
        Content::Push { .. } => panic!("nothing pushes"),
    };
    Reply { sync: reply.sync, schema_version: reply.schema_version, answer }
}

/// Code and text of an answer that is an error.
#[track_caller]
pub(crate) fn refused(answer: Answer) -> (ErrorCode, String) {
    let error = answer.expect_err("an error");
    (ErrorCode::from_u32(error.code).expect("a code"), error.message)
}

/// A task as it is answered.
pub(crate) fn task(id: u64, state: &str, data: &str) -> Vec<Value> {
    vec![values![id, state, data]]
}

/// `sync` of each reply.
pub(crate) fn syncs(replies: &[Reply]) -> Vec<u64> {
    replies.iter().map(|reply| reply.sync).collect()
}

/// A process whose salts are not random.
fn process() -> Process {
    let mut last = 0_u8;
    let entropy = Box::new(move |bytes: &mut [u8]| {
        for byte in bytes {
            last = last.wrapping_mul(5).wrapping_add(1);
            *byte = last;
        }
    });
    Process { id: 4711, entropy }
}
