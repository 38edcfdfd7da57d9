"""What a group of three costs against a single server, and what its members' troubles cost its clients.

    python tests/python/group_cost.py [--cycles N] [--rounds N] [--tasks N] [--joined N]

`LYCOSA_BIN` names the server, as for the tests; a release build is meant. The load is `lycosa bench run`. Rounds against the
single server and against the group alternate; both sync each batch. It prints one JSON object. Times are in milliseconds,
processor times in microseconds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import threading
import time

import tarantool

from group import DEFAULT_ELECTION_TIMEOUT, Group, connect
from server import ENVIRONMENT, Server, binary

BATCH = 1_000
MEMORY = ("--memory-limit", "6G")  # of each member: ten million tasks take 2.5 GB


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def set_priority(process, nice):
    """Of all threads of a process; the threads that these begin later have it too."""
    for thread in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


def cycles(address, connections, depth, count, process=None):
    """Cycles of put, take and ack at an address: their rate, latencies, and the processor time of a process for each."""
    before = processor_seconds(process) if process else 0
    # Without a warm-up: its cycles would take processor time too.
    load = ["--connections", str(connections), "--depth", str(depth), "--cycles", str(count), "--warmup", "0"]
    ran = subprocess.run(
        [binary(), "bench", "run", "--address", address, *load, "--json"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr)
    told = json.loads(ran.stdout.splitlines()[-1])
    result = {
        operation: {name: microseconds / 1e3 for name, microseconds in latencies.items() if name in ("p50", "p99")}
        for operation, latencies in told["latency_us"].items()
    }
    result["per_second"] = told["rounds_per_second"]
    if process:
        result["cpu_us"] = (processor_seconds(process) - before) / count * 1e6
    return result


def reign(group, frozen=None):
    """The number of the member that leads, and its term. A frozen member is not asked."""
    while True:
        for number in range(3):
            status = group.status(number) if number != frozen and group.processes[number] else None
            if status and status["leads"]:
                return number, status["term"]


def cycles_of(group, connections, depth, count, through=None, frozen=None, measures_process=False):
    """Cycles at the leader, or at the follower that `through` makes of its number. Where a busy machine makes the members elect
    another leader, the round begins again."""
    while True:
        leader, term = reign(group, frozen)
        number = through(leader) if through else leader
        try:
            return cycles(group.listens[number], connections, depth, count, group.processes[number] if measures_process else None)
        except RuntimeError:
            if reign(group, frozen)[1] == term:
                raise


def next_of(leader):
    return (leader + 1) % 3


def medians(rounds):
    """The median of each figure over rounds of one kind."""
    return {
        name: medians([each[name] for each in rounds])
        if isinstance(value, dict)
        else round(statistics.median(each[name] for each in rounds), 3)
        for name, value in rounds[0].items()
    }


def fill(address, tube, count):
    connection = connect(address)
    connection.call("queue.create_tube", [tube, "fifottl", {"if_not_exists": True}])
    while count > 0:
        connection.call(f"queue.tube.{tube}:put_many", [["x" * 64] * min(count, BATCH)])
        count -= BATCH
    connection.close()


class Probe:
    """Puts a task after the other, and notes the longest time from one acknowledgement to the next."""

    def __init__(self, address):
        self.connection = connect(address)
        self.connection.call("queue.create_tube", ["probe", "fifo", {"if_not_exists": True}])
        self.gaps = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        last = time.monotonic()
        while not self.is_over.is_set():
            try:
                self.connection.call("queue.tube.probe:put", [1])
            except tarantool.error.DatabaseError:
                continue
            now = time.monotonic()
            self.gaps.append(now - last)
            last = now

    def longest(self):
        """Ends the probe once it has an acknowledgement more."""
        seen = len(self.gaps)
        while self.thread.is_alive() and len(self.gaps) < seen + 2:
            time.sleep(0.001)
        self.is_over.set()
        self.thread.join()
        return max(self.gaps) * 1e3


class Load:
    """Cycles at 8 x 32 for as long as a measurement lasts; where a leader leaves, it begins again."""

    def __init__(self, address):
        self.address, self.is_over = address, threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.is_over.is_set():
            try:
                cycles(self.address, 8, 32, 20_000)
            except RuntimeError:
                continue

    def end(self):
        self.is_over.set()
        self.thread.join()


def transfers(group, count):
    """The longest time without an acknowledgement, for a client of a member that does not change, around each transfer under load."""
    longest = []
    for _ in range(count):
        leader = group.leader()
        successor = next_of(leader)
        load = Load(group.listens[leader])
        probe = Probe(group.listens[successor])
        try:
            time.sleep(0.5)
            group.transfer(leader, successor)
            longest.append(probe.longest())
        finally:
            probe.is_over.set()
            load.end()
    return longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=400_000, help="of each round at 8 x 32")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="that wait while leaders are changed")
    parser.add_argument("--joined", type=int, default=10_000_000, help="that a new member gets")
    arguments = parser.parse_args()
    few = max(arguments.cycles // 100, 50)
    result = {"cycles": arguments.cycles, "rounds": arguments.rounds}
    single, group = Server(options=['wal_mode = "fsync"']), Group(members=2, options=MEMORY, election_timeout=DEFAULT_ELECTION_TIMEOUT)
    try:
        address = f"127.0.0.1:{single.port}"
        fill(group.listens[0], "joined", arguments.joined)
        # Rounds of equal length: each begins with a burst of 256 requests, which counts for more in a short one.
        short = max(arguments.cycles // 10, 50)
        alone = medians([cycles_of(group, 8, 32, short) for _ in range(10 * arguments.rounds)])
        began = time.monotonic()
        group.start(2)
        # Elsewhere the new member has a machine of its own: here it gets what the others and the load leave over.
        set_priority(group.processes[2], 19)
        joining = threading.Thread(target=group.take_in, args=(2,))
        joining.start()
        beside = []
        while joining.is_alive() or not beside:
            beside.append(cycles_of(group, 8, 32, short))
        joining.join()
        set_priority(group.processes[2], 0)
        result["join"] = {
            "tasks": arguments.joined,
            "seconds": round(time.monotonic() - began, 1),
            "before": alone,
            "meanwhile": medians(beside),
            "worst_p99": max(latencies["p99"] for each in beside for latencies in each.values() if isinstance(latencies, dict)),
        }
        connection = connect(group.listens[0])
        connection.call("queue.tube.joined:truncate", [])
        connection.close()
        rounds = {kind: [] for kind in ("single", "group", "single_1x1", "group_1x1", "follower_1x1")}
        for _ in range(arguments.rounds):
            rounds["single"].append(cycles(address, 8, 32, arguments.cycles, single.process))
            rounds["group"].append(cycles_of(group, 8, 32, arguments.cycles, measures_process=True))
            rounds["single_1x1"].append(cycles(address, 1, 1, few))
            rounds["group_1x1"].append(cycles_of(group, 1, 1, few))
            rounds["follower_1x1"].append(cycles_of(group, 1, 1, few, through=next_of))
        follower = next_of(group.leader())
        group.freeze(follower)
        rounds["group_with_a_frozen_follower"] = [
            cycles_of(group, 8, 32, arguments.cycles, frozen=follower) for _ in range(arguments.rounds)
        ]
        group.thaw(follower)
        result["medians"] = {kind: medians(of_kind) for kind, of_kind in rounds.items()}
        group.until(group.leader(), lambda status: all(member["lag"] == 0 for member in status["members"]))
        fill(group.listens[group.leader()], "joined", arguments.tasks)
        result["transfers"] = {"tasks": arguments.tasks, "longest_gap_ms": [round(gap, 1) for gap in transfers(group, arguments.rounds)]}
    finally:
        print(json.dumps(result, indent=1))
        group.remove()
        single.remove()


if __name__ == "__main__":
    main()
