"""Three servers of the test's own that act as one group."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
import tarantool

from relay import Relay
from server import ENVIRONMENT, START_SECONDS, binary, free_port

FOREVER_US = 3600 * 1_000_000
# Seconds without a leader before members vote: the server's default, and what tests give it. Members that wait long for a processor elect without end.
DEFAULT_ELECTION_TIMEOUT = 0.3
ELECTION_TIMEOUT = 1.5


def connect(address):
    """The plain connector at an address."""
    host, port = address.rsplit(":", 1)
    return tarantool.Connection(host, int(port), fetch_schema=False, socket_timeout=600)


def put(connection, payload):
    """Puts into the tube `mail` until a put is acknowledged. A put whose outcome is not known may come twice."""
    while True:
        try:
            connection.call("queue.tube.mail:put", [payload])
            return
        except tarantool.error.DatabaseError:
            continue


class Group:
    """Up to three members, the first `members` of them from the start; `listens` are the addresses for clients, members count from 0.

    `options` are further options of `serve`, `clocks` libfaketime's library: with it `set_clock` puts the clock of a member forward. With a `network`
    each member has a host of it. With `is_relayed` a relay is between the members, with `http` each has an address for HTTP. `disk` are the bytes of a disk
    of each member's own, which `fill` leaves short of space. `programs` are the programs of members, each with options of its own, where another one than
    the tested one is meant; the group begins at the level of the first one."""

    def __init__(
        self,
        members=3,
        options=(),
        clocks=None,
        network=None,
        is_relayed=False,
        http=False,
        disk=None,
        programs=None,
        election_timeout=ELECTION_TIMEOUT,
    ):
        self.options = ("--cluster-election-timeout", str(election_timeout), *options)
        self.clocks, self.network = clocks, network
        self.programs = dict(programs or {})
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lycosa-test-"))
        self.secret = self.folder / "secret"
        self.secret.write_text("the secret of a test's group")
        self.secret.chmod(0o600)
        self.ports = [(free_port(), free_port()) for _ in range(3)]
        self.hosts = network.addresses if network else ["127.0.0.1"] * 3
        self.listens = [f"{host}:{listen}" for host, (listen, _) in zip(self.hosts, self.ports)]
        self.processes = [None, None, None]
        self.http = [f"{host}:{free_port()}" if http else "" for host in self.hosts]
        self.relay = Relay([member for _, member in self.ports], lambda: self.processes) if is_relayed else None
        self.disks = []
        try:
            for number in range(3 if disk else 0):
                self._mount(number, disk)
            self._begin()
            self.start(0)
            self.until(0, lambda status: status["leads"])
            if network:
                # On this machine alone guest may do everything.
                self._run("user", "grant", "guest", "--role", "super", "--data-dir", self.data(0))
            for number in range(1, members):
                self.join(number)
        except BaseException:
            self.remove()
            raise

    def join(self, number):
        """Starts an empty server and takes it in, until it votes."""
        self.start(number)
        self.take_in(number)

    def transfer(self, leader, successor):
        """Lets another member lead, and waits until it does."""
        identity = next(each["node"] for each in self.status(leader)["members"] if each["address"] == self._member(successor))
        deadline = time.monotonic() + START_SECONDS
        while True:
            ran = self._asked("cluster", "transfer", str(identity), "--data-dir", self.data(leader))
            # A successor that the machine has stopped for long does not lead within the order's time: it is given again.
            if ran.returncode == 0 or (self.status(successor) or {}).get("leads"):
                break
            is_over = time.monotonic() > deadline
            assert not is_over and (self.status(leader) or {}).get("leads"), ran.stderr
        self.until(successor, lambda status: status["leads"])

    def start(self, number):
        """Starts a member."""
        environment = ENVIRONMENT
        if self.clocks:
            if not self._clock(number).exists():
                self.set_clock(number, 0)
            file = str(self._clock(number))
            environment = ENVIRONMENT | {"LD_PRELOAD": self.clocks, "FAKETIME_TIMESTAMP_FILE": file}
            environment |= {"FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        with open(self.folder / f"log-{number}", "ab") as log:
            self.processes[number] = subprocess.Popen(
                [
                    *(self.network.inside(number) if self.network else ()),
                    *(self.program(number)[0], "serve", "--data-dir", self.data(number), "--listen", self.listens[number]),
                    *("--http-listen", self.http[number], "--lua", "false"),
                    *("--cluster-listen", self._own(number), "--cluster-secret-file", str(self.secret)),
                    *self.options,
                    *self.program(number)[1:],
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def set_clock(self, number, seconds):
        """Puts the time of day of a member forward by seconds against the machine's."""
        later = self._clock(number).with_suffix(".new")
        later.write_text(f"+{seconds}")
        later.rename(self._clock(number))

    def fill(self, number, left):
        """Leaves that many bytes free on the disk of a member."""
        free = shutil.disk_usage(self.data(number)).free
        with open(self._filler(number), "wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, max(free - left, 1))

    def unfill(self, number):
        self._filler(number).unlink()

    def _filler(self, number):
        return pathlib.Path(self.data(number)) / "filler"

    def _mount(self, number, disk):
        os.mkdir(self.data(number))
        command = ["mount", "-t", "tmpfs", "-o", f"size={disk},mode=700", "tmpfs", self.data(number)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this process may not mount a disk")
        self.disks.append(self.data(number))

    def terminate(self, number):
        """SIGTERM: a member that leads hands over first."""
        self.processes[number].terminate()
        assert self.processes[number].wait() == 0, self.log(number)

    def kill(self, number):
        """SIGKILL."""
        self._kill(self.processes[number])

    def _kill(self, process):
        process.kill()
        process.wait()
        # What libfaketime leaves of a process that is killed would stop a later one with the same number.
        for name in (f"faketime_shm_{process.pid}", f"sem.faketime_sem_{process.pid}"):
            pathlib.Path("/dev/shm", name).unlink(missing_ok=True)

    def freeze(self, number):
        """SIGSTOP: its connections stay, and it says nothing."""
        self.processes[number].send_signal(signal.SIGSTOP)

    def thaw(self, number):
        """SIGCONT."""
        self.processes[number].send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def slow_disk(self, number):
        """Meanwhile no sync of the member ends: its disk answers nothing, and nothing else of it is held up."""
        syncs = "fsync,fdatasync,sync_file_range"
        with tempfile.TemporaryFile("w+") as said:
            tracer = subprocess.Popen(
                [
                    *("strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={syncs}"),
                    *("-e", f"inject={syncs}:delay_enter={FOREVER_US}", "-p", str(self.processes[number].pid)),
                ],
                stdin=subprocess.DEVNULL,
                stderr=said,
            )
            try:
                deadline = time.monotonic() + START_SECONDS
                while self._tracer(number) != tracer.pid:
                    said.seek(0)
                    if tracer.poll() is not None:
                        pytest.skip(f"strace may not attach: {said.read()}")
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                yield
            finally:
                # A killed tracer lets its threads go on at once.
                tracer.kill()
                tracer.wait()

    def _tracer(self, number):
        """The process that traces all threads of a member."""
        tracers = set()
        for thread in pathlib.Path(f"/proc/{self.processes[number].pid}/task").iterdir():
            fields = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines() if ":" in line)
            tracers.add(int(fields["TracerPid"]))
        return tracers.pop() if len(tracers) == 1 else None

    def status(self, number):
        """What a member says about the group; None if it does not."""
        output = subprocess.run(
            [binary(), "cluster", "status", "--json", "--data-dir", self.data(number)],
            capture_output=True,
            check=False,
            env=ENVIRONMENT,
        ).stdout
        try:
            return json.loads(output)
        except ValueError:
            return None

    def connect(self, number):
        """The plain connector at a member."""
        return connect(self.listens[number])

    def until(self, number, is_so):
        """Waits until the status of a member is so."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            status = self.status(number)
            if status and is_so(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError(f"member {number}: {status}\n{self.log(number)}")
            time.sleep(0.02)

    def until_log(self, number, text):
        """Waits until the log of a member has a text."""
        deadline = time.monotonic() + START_SECONDS
        while text not in self.log(number):
            assert time.monotonic() < deadline, self.log(number)
            time.sleep(0.02)

    def leader(self):
        """The number of the member that leads."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for number in range(3):
                status = self.status(number)
                if status and status["leads"]:
                    return number
        raise AssertionError("no member leads")

    def log(self, number):
        return (self.folder / f"log-{number}").read_text(errors="replace")

    def remove(self):
        """Ends the servers and removes their data."""
        for process in self.processes:
            if process is not None:
                self._kill(process)
        if self.relay:
            self.relay.remove()
        for disk in self.disks:
            subprocess.run(["umount", "--lazy", disk], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.network:
            self.network.remove()

    def take_in(self, number):
        """Takes in a server that runs and is empty, and waits until it votes."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            # A busy machine may make the members elect another leader meanwhile: the order is given again.
            subprocess.run(
                [binary(), "cluster", "add", self._member(number), "--data-dir", self.data(0)],
                capture_output=True,
                check=False,
                env=ENVIRONMENT,
            )
            members = (self.status(0) or {}).get("members", ())
            if any(each["address"] == self._member(number) for each in members):
                break
            assert time.monotonic() < deadline, self.log(0)
        is_voter = lambda each: each["address"] == self._member(number) and each["standing"] == "voter"
        self.until(0, lambda status: any(is_voter(each) for each in status["members"]))
        self.until(number, lambda status: status["leader"] is not None)

    def program(self, number):
        """What a member runs, with its own options."""
        return self.programs.get(number, (binary(),))

    def _begin(self):
        program, *options = self.program(0)
        environment = dict(ENVIRONMENT)
        if "--cluster-level" in options:
            environment["LYCOSA_CLUSTER_LEVEL"] = options[options.index("--cluster-level") + 1]
        command = [program, "cluster", "init", "--data-dir", self.data(0), "--member-address", self._member(0)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert ran.returncode == 0, ran.stderr

    def _asked(self, *arguments):
        return subprocess.run([binary(), *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT)

    def _run(self, *arguments):
        ran = self._asked(*arguments)
        assert ran.returncode == 0, ran.stderr

    def data(self, number):
        """The data folder of a member."""
        return str(self.folder / f"data-{number}")

    def _clock(self, number):
        return self.folder / f"clock-{number}"

    def _member(self, number):
        """What the members name a member."""
        return self.relay.addresses[number] if self.relay else self._own(number)

    def _own(self, number):
        return f"{self.hosts[number]}:{self.ports[number][1]}"
