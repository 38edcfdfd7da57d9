"""Histories of put, take, ack, release and read by many clients, and what a queue promises about them.

Each operation is recorded with the moments between which it happened and with its outcome: `ok`, `refused` (nothing was done) or `unknown` (no answer says
what was done). The payload of a task is unique in a history; its id is not, because a put that was lost gives its id back.
"""

import random
import threading
import time
from dataclasses import dataclass, field

import lycosa
import tarantool

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"


@dataclass
class Operation:
    """An operation of a client. `found` is the payload that a take or a read has brought; None for none."""

    client: int
    kind: str
    payload: str | None = None
    task: int | None = None
    begin: float = 0.0
    end: float = float("inf")
    outcome: str = UNKNOWN
    found: str | None = None
    error: str = ""
    # How often the client has lost its session by then, and with it its tasks.
    sessions: int = 0


@dataclass
class History:
    operations: list = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: dict = field(default_factory=dict)

    def record(self, operation):
        with self.lock:
            self.operations.append(operation)
            key = (operation.kind, operation.outcome)
            self.counts[key] = self.counts.get(key, 0) + 1

    def count(self, kind, outcome=OK):
        with self.lock:
            return self.counts.get((kind, outcome), 0)


class Worker(threading.Thread):
    """A client that puts, takes, reads and settles tasks, by choices of its seed, until it is stopped."""

    def __init__(self, number, client, history, seed, pause=0.002):
        super().__init__(daemon=True)
        self.number, self.history, self.pause, self.client = number, history, pause, client
        self.random = random.Random(seed)
        self.tube = self.client.tube("mail")
        self.ends = threading.Event()
        self.failure = None
        # Payloads and ids of own puts that were acknowledged, to be read.
        self.known = []
        self.puts = 0

    def run(self):
        try:
            while not self.ends.is_set():
                self._step()
                time.sleep(self.pause)
        except BaseException as failure:
            self.failure = failure
        finally:
            self.client.close()

    def stop(self):
        self.ends.set()
        self.join(60)
        assert not self.is_alive(), f"client {self.number} hangs"
        if self.failure is not None:
            raise self.failure

    def _step(self):
        choice = self.random.random()
        if choice < 0.4:
            self.puts += 1
            payload = f"{self.number}-{self.puts}"
            task = self._do(Operation(self.number, "put", payload), lambda: self.tube.put(payload))
            if task is not None:
                self.known.append((payload, task.id))
        elif choice < 0.55 and self.known:
            payload, task = self.random.choice(self.known[-20:])
            self._do(Operation(self.number, "read", payload, task), lambda: self.tube.peek(task))
        else:
            taken = self._do(Operation(self.number, "take"), lambda: self.tube.take(0.1))
            if taken is None:
                return
            for _ in range(self.random.randrange(3)):
                time.sleep(self.pause)
            kind = "release" if self.random.random() < 0.2 else "ack"
            settle = Operation(self.number, kind, taken.data, taken.id)
            self._do(settle, taken.release if kind == "release" else taken.ack)

    def _do(self, operation, call):
        operation.begin = time.monotonic()
        answer = None
        try:
            answer = call()
            operation.outcome = OK
            if operation.kind in ("take", "read") and answer is not None:
                operation.found, operation.task = answer.data, answer.id
            if operation.kind == "put":
                operation.task = answer.id
        except lycosa.NoSuchTask:
            operation.outcome, operation.error = (OK if operation.kind == "read" else REFUSED), "no such task"
        except lycosa.LycosaError as error:
            operation.outcome = UNKNOWN if error.outcome_unknown else REFUSED
            operation.error = f"{type(error).__name__}: {error}"
        operation.end = time.monotonic()
        operation.sessions = self.client.session_changes
        self.history.record(operation)
        return answer


def drain(addresses, history, number=10_000, limit=120):
    """Takes and acknowledges all that is left; tasks of clients that have gone come when their sessions end."""
    deadline = time.monotonic() + limit
    with lycosa.Client(addresses, request_timeout=30, connect_timeout=60) as client:
        tube = client.tube("mail")

        def do(operation, call):
            """A busy machine may change the leader meanwhile: then the outcome is open."""
            operation.begin = time.monotonic()
            answer = None
            try:
                answer = call()
                operation.outcome = OK
            except lycosa.LycosaError as error:
                if not (error.passes or isinstance(error, lycosa.NotTaken)) or time.monotonic() > deadline:
                    raise
                operation.error = f"{type(error).__name__}: {error}"
            operation.end, operation.sessions = time.monotonic(), client.session_changes
            return answer

        while True:
            taken = Operation(number, "take")
            task = do(taken, lambda: tube.take(0.5))
            if task is None:
                left = (do(Operation(number, "statistics"), tube.statistics) or {"tasks": {"taken": 1}})["tasks"]
                if not any(left.get(state) for state in ("ready", "taken", "delayed", "buried")):
                    return
                assert time.monotonic() < deadline, f"tasks that nobody gets: {left}, {_held(addresses[0])}"
                continue
            taken.found, taken.task = task.data, task.id
            history.record(taken)
            ack = Operation(number, "ack", task.data, task.id)
            do(ack, task.ack)
            history.record(ack)


def _held(address):
    """Who has the tasks that are taken, and the sessions that there are, for people."""
    host, port = address.rsplit(":", 1)
    connection = tarantool.Connection(host, int(port), fetch_schema=False)
    [found] = connection.call("queue.tube.mail:find", [{"state": "taken"}]).data
    return [connection.call("queue.tube.mail:explain", [task[0]]).data for task in found["tasks"]], connection.call("queue.sessions").data


def violations(operations, reads_are_linearizable=True):
    """What a queue must not do, of a whole history that ends with a drain. Texts for people.

    A replica of a pair shows what it has received so far, and so does an old master: there the time of a read says nothing.
    """
    found = []
    by_kind = {}
    for operation in operations:
        by_kind.setdefault(operation.kind, []).append(operation)
    puts = {each.payload: each for each in by_kind.get("put", ())}
    takes = {}
    for each in by_kind.get("take", ()):
        if each.outcome == OK and each.found is not None:
            takes.setdefault(each.found, []).append(each)
    acks, settles = {}, {}
    for each in by_kind.get("ack", ()):
        acks.setdefault(each.payload, []).append(each)
    for kind in ("ack", "release"):
        for each in by_kind.get(kind, ()):
            settles.setdefault((each.client, each.payload), []).append(each)
    for payload, put in puts.items():
        taken, acked = takes.get(payload, []), acks.get(payload, [])
        if put.outcome == REFUSED and taken:
            found.append(f"{payload}: its put was refused ({put.error}), and it was taken: {taken[0]}")
        done = [each for each in acked if each.outcome == OK]
        if put.outcome == OK and not done and not any(each.outcome == UNKNOWN for each in acked):
            found.append(f"{payload}: the acknowledged task is missing: {put}")
        if len(done) > 1:
            found.append(f"{payload}: acknowledged twice: {done}")
        for take in taken:
            for ack in done:
                if take.begin > ack.end:
                    found.append(f"{payload}: comes again after its ack: {ack}, {take}")
        found += _owners(payload, taken, settles)
    for payload in takes.keys() - puts.keys():
        found.append(f"{payload}: was never put: {takes[payload][0]}")
    if reads_are_linearizable:
        found += _reads(by_kind.get("read", ()), puts, acks)
    return found


def _owners(payload, taken, settles):
    """Takes of a task while another client has it."""
    found = []
    for take in taken:
        later = [each for each in settles.get((take.client, payload), ()) if each.begin >= take.end]
        settle = min(later, key=lambda each: each.begin, default=None)
        # A client that has lost its session has lost its tasks.
        if settle is None or settle.sessions != take.sessions:
            continue
        for other in taken:
            if other is not take and take.end < other.end < settle.begin:
                found.append(f"{payload}: has two owners: {take}, {other}")
        if settle.outcome == REFUSED and "NotTaken" in settle.error:
            found.append(f"{payload}: its owner has lost it: {take}, {settle}")
    return found


def _reads(reads, puts, acks):
    """Reads that show a state from before an operation that had ended."""
    found = []
    for read in reads:
        if read.outcome != OK:
            continue
        acked = acks.get(read.payload, ())
        shows = read.found == read.payload
        if not shows and not any(each.begin < read.end and each.outcome != REFUSED for each in acked):
            if puts[read.payload].outcome == OK and puts[read.payload].end < read.begin:
                found.append(f"{read.payload}: is not shown after its put: {read}")
        if shows and any(each.outcome == OK and each.end < read.begin for each in acked):
            found.append(f"{read.payload}: is shown after its ack: {read}")
    return found
