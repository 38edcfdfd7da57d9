"""A master and its replica, and a third instance that follows the replica: servers of the test's own, and an operator who mends them."""

import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import lycosa
from lycosa.requests import Request
from server import ENVIRONMENT, START_SECONDS, binary, free_port

NAMES = "AB"
RELAY = 2


class Pair:
    """Servers 0 and 1, of which `master` takes writes and the other one follows and confirms; server 2 follows the replica."""

    def __init__(self, names_each_other=False, relays=True):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lycosa-test-"))
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        self.processes = [None, None, None]
        self.names_each_other = names_each_other
        self.master = 0
        self.relays = relays
        try:
            self._begin()
        except BaseException:
            self.remove()
            raise

    def _begin(self):
        # Starts the first one alone: it begins the replica set.
        self.start(0, alone=True)
        self.start(1)
        self.wait(lambda: self.follows(1), "the replica follows")
        if self.relays:
            # Only a master registers a new instance; from then on it follows the replica.
            self.start(RELAY, source=0)
            self.wait(lambda: self.follows(RELAY), "the third instance joins")
            self.stop(RELAY)
            self.start(RELAY)
            self.wait(lambda: self.follows(RELAY), "the third instance follows the replica")
        with lycosa.Client(self.addresses[0]) as client:
            client.create_tube("mail", "fifo")

    @property
    def replica(self):
        return 1 - self.master

    def data(self, number):
        return self.folder / f"data-{number}"

    def start(self, number, master=None, alone=False, forced=False, source=None):
        """Starts an instance as what the operator thinks that it is, or as the master."""
        is_master = number == self.master if master is None else master
        other = 1 - number if number != RELAY else self.replica if source is None else source
        masters = "" if alone or (is_master and not self.names_each_other) else self.addresses[other]
        configuration = [
            f'listen = "{self.addresses[number]}"',
            f'data_dir = "{self.data(number)}"',
            'http.listen = ""',
            "lua = false",
            f'replication = "{masters}"',
            f"read_only = {str(not is_master).lower()}",
            f"replicas_before_reply = {0 if number == RELAY else 1}",
            "replication_connect_timeout = 60",
            "replication_sync_timeout = 2",
            "queue.ttr = 5",
            "queue.in_replicaset = true",
            "",
            "[[user]]",
            'name = "guest"',
            'roles = ["super"]',
        ]
        file = self.folder / f"{number}.toml"
        file.write_text("\n".join(configuration) + "\n")
        with open(self.folder / f"log-{number}", "ab") as log:
            self.processes[number] = subprocess.Popen(
                [binary(), "serve", "--config", str(file), *(["--force-recovery", "true"] if forced else [])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, "NO_COLOR": "1"},
            )

    def kill(self, number):
        """SIGKILL."""
        self.processes[number].kill()
        self.processes[number].wait()

    def stop(self, number):
        process = self.processes[number]
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill(number)

    def info(self, number):
        """`box.info` of an instance; None if it does not answer."""
        try:
            with lycosa.Client(self.addresses[number], request_timeout=2, connect_timeout=2) as client:
                return client.call(Request("box.info", repeatable=True))[0]
        except (lycosa.LycosaError, OSError):
            return None

    def upstream(self, number):
        info = self.info(number) or {}
        found = [each["upstream"] for each in (info.get("replication") or {}).values() if each.get("upstream")]
        return found[0] if found else {}

    def follows(self, number):
        return self.upstream(number).get("status") == "follow"

    def command(self, *arguments, check=True):
        output = subprocess.run(
            [binary(), *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=120
        )
        assert not check or output.returncode == 0, f"{arguments}: {output.stdout}{output.stderr}"
        return output

    def wait(self, holds, what):
        deadline = time.monotonic() + START_SECONDS * 2
        while not holds():
            for number, process in enumerate(self.processes):
                assert process is None or process.poll() is None, f"{number} has ended:\n{self.log(number)}"
            assert time.monotonic() < deadline, f"{what}\n" + "\n".join(self.log(each) for each in range(3))
            time.sleep(0.02)

    def wait_until_up(self, number):
        self.wait(lambda: self.info(number) is not None, f"{number} answers")

    def promote(self, number):
        """The operator makes an instance the master, whether or not the other one hears of it."""
        self.command("promote", "--force", "--data-dir", str(self.data(number)))
        self.master = number

    def mend(self):
        """The operator's work after a promotion: the old master follows the new one, with its folder if its rows allow it, else with an empty one."""
        other = self.replica
        if self.processes[other].poll() is None:
            self.stop(other)
        self.start(other)

        joined_anew = self._joins_anew_if_refused(other)
        self.wait(lambda: self.follows(other), f"{NAMES[other]} follows")
        # Until now the third instance has followed the new master and confirmed rows to it: the replica is to have them too.
        self.wait(lambda: self._has_rows(other, self.master), f"{NAMES[other]} has all rows")
        if self.relays:
            if self._joins_anew_if_refused(RELAY):
                self.wait(lambda: self.follows(RELAY), "the third instance joins again")
            self.stop(RELAY)
            self.start(RELAY)
            self.wait(lambda: self.follows(RELAY), "the third instance follows the replica")
            self.wait(lambda: self._has_rows(other, self.master), f"{NAMES[other]} has all rows")
        return joined_anew

    def _has_rows(self, number, master):
        """Whether an instance has the rows that the master has had a moment before."""
        wanted, known = self.info(master), self.info(number)
        if wanted is None or known is None:
            return False
        return all(known["vclock"].get(each, 0) >= lsn for each, lsn in wanted["vclock"].items())

    def _joins_anew_if_refused(self, number):
        """An instance that has rows which its replica set has given up gets an empty folder, as its log says."""
        is_refused = lambda: "Split-Brain" in (self.upstream(number).get("message") or "") and not self.follows(number)
        ended = lambda: self.processes[number].poll() is not None
        deadline = time.monotonic() + START_SECONDS
        while not (ended() or is_refused() or self.follows(number)) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not ended() and self.follows(number):
            return False
        if not ended():
            self.kill(number)
        shutil.move(self.data(number), self.folder / f"aside-{time.monotonic_ns()}")
        self.start(number, source=self.master)
        return True

    def log(self, number):
        path = self.folder / f"log-{number}"
        text = path.read_text(errors="replace") if path.exists() else ""
        return f"--- log of {number}\n" + "\n".join(text.splitlines()[-30:])

    def remove(self):
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
