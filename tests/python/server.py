"""A Lycosa server of the test's own: a free loopback port, a data folder that goes away with it, stopped by its own pid."""

import fcntl
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ADMIN_PASSWORD = "admin of the tests"
START_SECONDS = 180
STOP_SECONDS = 20
# Variables of this name are settings to the program, and those of the tests are not meant.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("LYCOSA_")}


def binary():
    """The server to test: LYCOSA_BIN, or the debug build."""
    named = os.environ.get("LYCOSA_BIN")
    if named:
        return named
    top = pathlib.Path(__file__).resolve().parents[2]
    return str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", top / "target")) / "debug" / "lycosa")


# Seconds of attempts that follow each other until one has been enough for a busy machine.
MORE_AND_MORE = (0.2, 1, 5, 30)


PORTS = range(10_000, 30_000)
_held = []


def free_port():
    """A port below the range that clients get theirs from; each is given once, to the process that holds the lock of its file.

    The tests of the binary (crates/lycosa/tests/shared/addresses.rs) take theirs in the same way.
    """
    folder = pathlib.Path(tempfile.gettempdir()) / "lycosa-test-ports"
    folder.mkdir(exist_ok=True)
    first = os.getpid() * 41
    for step in range(len(PORTS)):
        port = PORTS[(first + step) % len(PORTS)]
        lock = open(folder / str(port), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        return port
    raise OSError(f"no port of {PORTS} is free")


class Server:
    """A running server; `queue` are options of queue.cfg, `options` lines at the head of its configuration."""

    def __init__(self, queue=None, options=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lycosa-test-"))
        self.host, self.port = "127.0.0.1", free_port()
        self.queue, self.options = dict(queue or {}), list(options)
        self.process = None
        self.start()

    def start(self):
        config = self.folder / "lycosa.toml"
        config.write_text(self._config())
        (self.folder / "data").mkdir(exist_ok=True)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [binary(), "serve", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**ENVIRONMENT, "NO_COLOR": "1"},
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.check_alive()
            try:
                with socket.create_connection((self.host, self.port), 1) as probe:
                    if probe.recv(9) == b"Tarantool":
                        return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"the server did not start; its log:\n{self.log()}")
            time.sleep(0.01)

    def stop(self):
        """SIGTERM, and the wait for the end."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop on SIGTERM; its log:\n{self.log()}") from None
        self.process = None
        assert status == 0, f"after SIGTERM the server ended with {status}; its log:\n{self.log()}"

    def kill(self):
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self):
        self.stop()
        self.start()

    def remove(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def check_alive(self):
        assert self.process is not None, "the server is stopped"
        status = self.process.poll()
        assert status is None, f"the server ended by itself with {status}; its log:\n{self.log()}"

    def resident_bytes(self):
        """The memory of the process that is in RAM."""
        self.check_alive()
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def log(self):
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])

    def connect(self, timeout=60):
        """A plain socket that has read the greeting."""
        sock = socket.create_connection((self.host, self.port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = b""
        while len(greeting) < 128:
            piece = sock.recv(128 - len(greeting))
            assert piece, "the server closed before its greeting was over"
            greeting += piece
        return sock

    def _config(self):
        lines = [f'listen = "{self.host}:{self.port}"', f'data_dir = "{self.folder / "data"}"', *self.options]
        lines += ["", "[[user]]", 'name = "admin"', f'password = "{ADMIN_PASSWORD}"']
        lines += ["", "[[user]]", 'name = "guest"', 'roles = ["super"]']
        if self.queue:
            lines += ["", "[queue]"]
            lines += [f"{name} = {str(value).lower()}" for name, value in self.queue.items()]
        return "\n".join(lines) + "\n"
