"""Graphite's own daemon, carbon, stores what the server sends: over UDP and over TCP, and after carbon was away."""

import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from protocol import ask, call
from server import free_port

if importlib.util.find_spec("carbon") is None or importlib.util.find_spec("whisper") is None:
    pytest.skip("carbon is not installed in this Python: `cargo xtask install`", allow_module_level=True)

START_SECONDS = 180
WAIT_SECONDS = 180

CONFIGURATION = """
[cache]
STORAGE_DIR = {folder}
LOCAL_DATA_DIR = {folder}/whisper
CONF_DIR = {folder}/conf
LOG_DIR = {folder}/log
PID_DIR = {folder}
DATABASE = whisper
MAX_CREATES_PER_MINUTE = inf
MAX_UPDATES_PER_SECOND = inf
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {lines}
ENABLE_UDP_LISTENER = True
UDP_RECEIVER_INTERFACE = 127.0.0.1
UDP_RECEIVER_PORT = {lines}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickles}
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {queries}
"""

# A value each second for an hour.
SCHEMAS = """
[all]
pattern = .*
retentions = 1s:1h
"""


class Carbon:
    """carbon-cache with its files in a folder of its own."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lycosa-carbon-"))
        (self.folder / "conf").mkdir()
        self.port = free_port()
        ports = {"lines": self.port, "pickles": free_port(), "queries": free_port()}
        self.configuration = self.folder / "conf" / "carbon.conf"
        self.configuration.write_text(CONFIGURATION.format(folder=self.folder, **ports))
        (self.folder / "conf" / "storage-schemas.conf").write_text(SCHEMAS)
        self.process = None
        self.start()

    def start(self):
        program = pathlib.Path(sys.executable).parent / "carbon-cache.py"
        arguments = [f"--config={self.configuration}", "--nodaemon", "start"]
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "GRAPHITE_ROOT": str(self.folder)},
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process.poll() is None, f"carbon ended by itself:\n{self.output()}"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, f"carbon did not start:\n{self.output()}"
                time.sleep(0.05)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def output(self):
        return (self.folder / "output").read_text(errors="replace")[-2000:]

    def values(self, name):
        """Time and value of each second for which carbon has stored a value of that name."""
        import whisper

        path = self.folder / "whisper" / (name.replace(".", "/") + ".wsp")
        if not path.exists():
            return {}
        try:
            found = whisper.fetch(str(path), int(time.time()) - 3000)
        except whisper.CorruptWhisperFile:
            # Carbon is making it.
            return {}
        (first, _, step), values = found
        return {first + place * step: value for place, value in enumerate(values) if value is not None}

    def wait_for(self, name, is_wanted):
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_wanted(self.values(name)):
            assert time.monotonic() < deadline, f"{name} is {self.values(name)}; carbon says:\n{self.output()}"
            time.sleep(0.1)


@pytest.fixture
def carbon():
    daemon = Carbon()
    yield daemon
    daemon.remove()


def start_sending(start_server, carbon, scheme):
    options = [f'graphite.server = "{scheme}://127.0.0.1:{carbon.port}"', "graphite.period = 1"]
    server = start_server(options=options)
    client = server.connect()
    ask(client, call(1, "queue.create_tube", "mail", "fifottl"))
    for number in range(3):
        ask(client, call(2 + number, "queue.tube.mail:put", "a task"))
    ask(client, call(8, "queue.tube.mail:put", "later", {"delay": 3600}))
    return server, client


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_carbon_stores_the_numbers_of_a_tube(start_server, carbon, scheme):
    _, client = start_sending(start_server, carbon, scheme)
    carbon.wait_for("queue.stats.mail.tasks.ready", lambda values: 3.0 in values.values())
    carbon.wait_for("queue.stats.mail.tasks.delayed", lambda values: 1.0 in values.values())
    ask(client, call(9, "queue.tube.mail:take", 0))
    carbon.wait_for("queue.stats.mail.tasks.taken", lambda values: 1.0 in values.values())
    carbon.wait_for("queue.stats.mail.tasks.ready", lambda values: values[max(values)] == 2.0)


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_numbers_come_again_when_carbon_was_away(start_server, carbon, scheme):
    server, client = start_sending(start_server, carbon, scheme)
    name = "queue.stats.mail.tasks.ready"
    carbon.wait_for(name, lambda values: 3.0 in values.values())
    carbon.stop()
    # The server goes on without it.
    for number in range(4):
        assert ask(client, call(20 + number, "queue.tube.mail:put", "a task"))
    carbon.start()
    carbon.wait_for(name, lambda values: 7.0 in values.values())
    server.check_alive()
