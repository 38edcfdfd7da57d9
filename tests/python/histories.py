"""Random histories of real servers: clients work while servers are killed, frozen, promoted, and lose the tails of their journals, or cannot hear each other.

    python tests/python/histories.py group|network|troubles|pair [--rounds N] [--seed S]

One seed makes the choices of faults and clients; the course of a run is that of the machine. Rounds are counted: one goes on once the clients have done a
number of operations, and a put was acknowledged after its remedy. At the end all tasks are taken, and history.violations() looks at every operation.
"""

import argparse
import glob
import random
import shutil
import subprocess
import sys
import time

import lycosa
from clients import HttpClient, PlainClient
from group import DEFAULT_ELECTION_TIMEOUT, ELECTION_TIMEOUT, Group
from history import History, Worker, drain, violations
from network import LOSSY, SLOW, Network
from pair import NAMES, RELAY, Pair
from server import ENVIRONMENT, binary

CLIENTS = 6
# Operations of all clients before a fault, and between it and its remedy.
STEP = 30
# Of a request, in seconds.
REQUEST = 2.0
# For how many seconds a session outlives its connection in a history of troubles, so that the drain gets the tasks of lost answers.
SESSION = 6
# Bytes of each member's disk in a history of troubles, what is kept for the end of tasks, and what a full disk has left.
DISK, RESERVE, SHORT = 96 << 20, 16 << 20, 12 << 20
TROUBLES = ["late", "narrow", "deaf", "mute", "cut", "flapping", "slow disk", "full disk", "clock", "end", "kill while late", "freeze while narrow"]
# A limit that only a hang reaches.
PATIENCE = 120


class Progress:
    """Waits until the clients have done so many operations, whatever their outcome, or puts that were acknowledged."""

    def __init__(self, history, workers):
        self.history, self.workers = history, workers

    def operations(self, count):
        self._wait(lambda: len(self.history.operations), count)

    def puts(self, count=3):
        self._wait(lambda: self.history.count("put"), count)

    def _wait(self, value, count):
        wanted, deadline = value() + count, time.monotonic() + PATIENCE
        while value() < wanted:
            for worker in self.workers:
                if worker.failure is not None:
                    raise worker.failure
            assert time.monotonic() < deadline, f"the clients do not get on: {self.history.counts}, {self.history.operations[-3:]}"
            time.sleep(0.005)


def group_faults(group, choice, progress):
    """One fault of a group of three, and its remedy."""
    up = lambda number: group.until(number, lambda status: status["leader"] is not None and status["state"] == "running")
    leader = group.leader()
    victim = choice.choice([leader, leader, (leader + 1) % 3, (leader + 2) % 3])
    fault = choice.choice(["kill", "freeze", "transfer", "kill two", "kill all", "freeze and kill"])
    if fault == "kill":
        group.kill(victim)
        progress.puts()
        group.start(victim)
        up(victim)
    elif fault == "freeze":
        group.freeze(victim)
        progress.puts()
        group.thaw(victim)
        up(victim)
    elif fault == "transfer":
        successor = choice.choice([(leader + 1) % 3, (leader + 2) % 3])
        try:
            group.transfer(leader, successor)
        except AssertionError:
            # Another election came before it.
            group.leader()
    elif fault == "kill two":
        victims = choice.sample(range(3), 2)
        for each in victims:
            group.kill(each)
        progress.operations(CLIENTS)
        for each in victims:
            group.start(each)
        for each in victims:
            up(each)
    elif fault == "kill all":
        for each in range(3):
            group.kill(each)
        for each in choice.sample(range(3), 3):
            group.start(each)
        for each in range(3):
            up(each)
    else:
        other = (victim + 1) % 3
        group.freeze(victim)
        progress.operations(CLIENTS)
        group.kill(other)
        progress.operations(CLIENTS)
        group.thaw(victim)
        progress.puts()
        group.start(other)
        up(other)
    return fault


def network_fault(group, fault, choice, progress):
    """One fault of the network of a group of three, and its end."""
    network, leader = group.network, group.leader()
    victim = choice.choice([leader, leader, (leader + 1) % 3, (leader + 2) % 3])
    other = (victim + choice.choice([1, 2])) % 3
    hears = lambda number: group.until(number, lambda status: status["leader"] is not None and status["state"] == "running")
    if fault == "cut":
        network.cut(victim)
        progress.puts()
        network.join(victim)
    elif fault == "cut two":
        network.cut(victim)
        network.cut(other)
        progress.operations(CLIENTS)
        network.join(victim)
        network.join(other)
    elif fault == "mute":
        network.mute(victim, other)
        progress.puts()
        network.unmute(victim, other)
    elif network.shape(victim, SLOW if fault == "slow" else LOSSY):
        progress.puts()
        network.unshape(victim)
    else:
        return f"{fault}, which this kernel has not"
    for number in range(3):
        hears(number)
    return fault


def trouble(group, fault, choice, progress):
    """One trouble of a member of a group of three with a relay between them, and its end. Clients are at all members."""
    relay, leader = group.relay, group.leader()
    victim = choice.choice([leader, leader, (leader + 1) % 3, (leader + 2) % 3])
    others = [number for number in range(3) if number != victim]
    some = choice.choice([others, others, others[:1], others[1:]])
    if fault == "late":
        relay.slow_down(relay.around(victim), delay=choice.choice([0.01, 0.1, 0.4]))
        progress.puts()
    elif fault == "narrow":
        relay.slow_down(relay.around(victim), rate=choice.choice([2_000, 20_000, 200_000]))
        progress.puts()
    elif fault == "deaf":
        relay.hold(relay.between(some, [victim]))
        progress.puts()
    elif fault == "mute":
        relay.hold(relay.between([victim], some))
        progress.puts()
    elif fault == "cut":
        relay.cut(relay.between([victim], some))
        progress.puts()
    elif fault == "flapping":
        for _ in range(5):
            relay.cut(relay.between([victim], some))
            progress.operations(CLIENTS)
            relay.heal()
            progress.operations(CLIENTS)
    elif fault == "slow disk":
        with group.slow_disk(victim):
            progress.puts()
            if victim == leader:
                group.until(others[0], lambda status: status["leader"] not in (None, victim + 1))
                progress.puts()
    elif fault == "full disk":
        group.fill(victim, SHORT)
        progress.puts()
        if victim == leader:
            group.until(others[0], lambda status: status["leader"] is not None and not group.status(victim)["leads"])
        progress.puts()
        group.unfill(victim)
    elif fault == "clock":
        group.set_clock(victim, choice.choice([-3600, -30, 30, 3600]))
        progress.puts()
    elif fault == "end":
        group.terminate(victim)
        progress.puts()
        group.start(victim)
    elif fault == "kill while late":
        relay.slow_down(relay.between(others, others), delay=0.05)
        group.kill(victim)
        progress.puts()
        group.start(victim)
    else:
        relay.slow_down(relay.between(others, others), rate=50_000)
        group.freeze(victim)
        progress.puts()
        group.thaw(victim)
    relay.heal()
    for number in range(3):
        group.until(number, lambda status: status["leader"] is not None and status["state"] == "running")
    return f"{fault} of {'the leader' if victim == leader else 'a follower'}"


def clients_of_all_kinds(group):
    """Of the package, of the plain connector, and of HTTP, each at members in turn."""
    leader = group.leader()
    token = ["token", "add", "history", "--role", "operator", "--tube", "*", "--data-dir", group.data(leader)]
    added = subprocess.run([binary(), *token], capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout.strip()
    kinds = [
        lambda number: lycosa.Client(group.listens, request_timeout=REQUEST, connect_timeout=REQUEST),
        lambda number: PlainClient(group.listens[number % 3], REQUEST),
        lambda number: HttpClient(group.http[number % 3], added, REQUEST),
    ]
    return [kinds[number // 3 % 3](number) for number in range(9)]


def last_journal(folder):
    return max(folder.glob("*.xlog"), key=lambda path: int(path.stem))


def cut_tail(folder, choice):
    """Takes some bytes away from the end of the newest journal that has rows, as a disk does that lies about its syncs."""
    for path in sorted(folder.glob("*.xlog"), key=lambda path: int(path.stem), reverse=True):
        content = path.read_bytes()
        length = len(content.rstrip(b"\0"))
        head = content.find(b"\n\n") + 2
        if length > head:
            cut = max(head, length - choice.choice([1, 50, 500, 5000]))
            with open(path, "r+b") as file:
                file.truncate(cut)
            return length - cut
    return 0


def pair_faults(pair, choice, progress, backups, only):
    """One fault of a pair, what the operator does about it, and the remedy."""
    fault = choice.choice(only or ["planned", "killed", "frozen", "lost tail", "restored", "replica killed", "replica lost tail"])
    old, new = pair.master, pair.replica
    if fault == "planned":
        output = pair.command("demote", "--data-dir", str(pair.data(old)), "--json", check=False)
        vclock = pair.info(old)["vclock"]
        after = "{" + ", ".join(f"{number}: {lsn}" for number, lsn in vclock.items()) + "}"
        assert output.returncode == 0, output
        pair.command("promote", "--data-dir", str(pair.data(new)), "--after", after)
        pair.master = new
    elif fault == "killed":
        pair.kill(old)
        progress.operations(CLIENTS)
        pair.promote(new)
        # A supervisor starts the old master as what it was.
        pair.start(old, master=True)
        pair.wait_until_up(old)
        progress.operations(CLIENTS)
    elif fault == "frozen":
        pair.processes[old].send_signal(19)
        progress.operations(CLIENTS)
        pair.promote(new)
        pair.processes[old].send_signal(18)
        progress.operations(CLIENTS)
    elif fault == "lost tail":
        pair.kill(old)
        cut_tail(pair.data(old), choice)
        pair.start(old, master=True, forced=True)
        pair.wait_until_up(old)
        progress.operations(STEP)
        if choice.random() < 0.5:
            pair.kill(old)
        pair.promote(new)
        progress.operations(CLIENTS)
    elif fault == "restored":
        backup = pair.folder / f"backup-{len(backups)}"
        pair.command("backup", str(backup), "--data-dir", str(pair.data(old)))
        backups.append(backup)
        progress.operations(STEP)
        pair.kill(old)
        shutil.rmtree(pair.data(old))
        pair.command("restore", str(backup), "--data-dir", str(pair.data(old)))
        pair.start(old, master=True)
        pair.wait_until_up(old)
        progress.operations(STEP)
        pair.promote(new)
        progress.operations(CLIENTS)
    elif fault == "replica killed":
        pair.kill(new)
        progress.operations(CLIENTS)
        pair.start(new)
    else:
        pair.kill(new)
        cut_tail(pair.data(new), choice)
        pair.start(new, forced=True)
        pair.wait_until_up(new)
        progress.operations(CLIENTS)
    joined = pair.mend()
    return f"{fault}{', joined anew' if joined else ''}"


def run(kind, rounds, seed, report=lambda text: None, only=None, election_timeout=ELECTION_TIMEOUT):
    """Runs a history, and gives what it violates."""
    choice = random.Random(seed)
    if kind == "troubles":
        clocks = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        options = ["--disk-reserve", str(RESERVE), "--queue-ttr", str(SESSION)]
        clock = clocks[0] if clocks else None
        servers = Group(options=options, clocks=clock, is_relayed=True, http=True, disk=DISK, election_timeout=election_timeout)
        backups, addresses = [], servers.listens
    elif kind in ("group", "network"):
        network = Network(3) if kind == "network" else None
        servers, backups = Group(network=network, election_timeout=election_timeout), []
        addresses = servers.listens
    else:
        servers, backups = Pair(names_each_other=choice.random() < 0.5, relays=True), []
        addresses = servers.addresses[:2]
    history, workers = History(), []
    faults = []
    try:
        if kind != "pair":
            with lycosa.Client(addresses) as client:
                client.create_tube("mail", "fifo")
        if kind == "troubles":
            clients = clients_of_all_kinds(servers)
        else:
            # Half of the clients know one address alone.
            known = [addresses if number % 2 else addresses[number // 2 % len(addresses)] for number in range(CLIENTS)]
            clients = [lycosa.Client(each, request_timeout=REQUEST, connect_timeout=REQUEST) for each in known]
        for number, client in enumerate(clients):
            workers.append(Worker(number, client, history, choice.random()))
        for worker in workers:
            worker.start()
        progress = Progress(history, workers)
        for number in range(rounds):
            progress.operations(STEP)
            if kind == "group":
                fault = group_faults(servers, choice, progress)
            elif kind == "network":
                faults = faults or choice.sample(["cut", "cut two", "mute", "slow", "lossy"], 5)
                fault = network_fault(servers, faults.pop(), choice, progress)
            elif kind == "troubles":
                possible = [each for each in TROUBLES if each != "clock" or servers.clocks]
                faults = faults or choice.sample(only or possible, len(only or possible))
                fault = trouble(servers, faults.pop(), choice, progress)
            else:
                fault = pair_faults(servers, choice, progress, backups, only)
            progress.puts()
            report(f"round {number}, {time.monotonic():.3f}: {fault}; {sum(history.counts.values())} operations")
        for worker in workers:
            worker.stop()
        drain(addresses, history)
        found = violations(history.operations, reads_are_linearizable=kind != "pair")
        if kind == "pair":
            found += differences(servers)
        if found:
            payloads = {text.split(":")[0] for text in found}
            told = [each for each in history.operations if {each.payload, each.found} & payloads]
            report("\n".join(str(each) for each in sorted(told, key=lambda each: each.begin)))
            report("\n".join(servers.log(number) for number in range(3)))
        return found, history
    except BaseException:
        report("\n".join(servers.log(number)[-6000:] for number in range(3)))
        raise
    finally:
        for worker in workers:
            worker.ends.set()
        servers.remove()


def differences(pair):
    """What differs between the master, its replica, and the instance that follows by a relay."""
    found = []
    for number in (pair.replica, RELAY):
        compared = pair.command("compare", pair.addresses[pair.master], pair.addresses[number], "--timeout", "30", check=False)
        if compared.returncode:
            found.append(f"{NAMES[pair.master]} and {number} differ:\n{compared.stdout}{compared.stderr}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["group", "network", "troubles", "pair"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--election-timeout", type=float, default=DEFAULT_ELECTION_TIMEOUT, help="seconds, of a group's members")
    parser.add_argument("--only", action="append", help="a fault of a pair, or a trouble; may be repeated")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    report = lambda text: print(text, flush=True)
    found, history = run(arguments.kind, arguments.rounds, arguments.seed, report, arguments.only, arguments.election_timeout)
    print(f"{len(history.operations)} operations: {history.counts}")
    for violation in found:
        print(f"VIOLATION: {violation}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
