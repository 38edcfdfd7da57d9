"""A start that takes long: clients wait or are told how far it is, and are served once it is over.

The test holds a lease on a file of the journal, so that the server's open() of it waits until the test lets it go. Nothing depends on the speed of
the machine.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from protocol import ask, call
from server import ENVIRONMENT, MORE_AND_MORE, binary, free_port

# A limit that only a hang reaches. The system itself takes a lease away after 45 s.
WAIT_SECONDS = 180


class Lease:
    """Keeps other processes from opening a file, until it is released."""

    def __init__(self, path):
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        self.file = os.open(path, os.O_RDWR)
        fcntl.fcntl(self.file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def is_wanted(self):
        """Whether a process waits: the lease is about to be broken."""
        return fcntl.fcntl(self.file, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def release(self):
        if self.file is not None:
            fcntl.fcntl(self.file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(self.file)
            self.file = None


def wait_for(holds, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def lycosa(*arguments):
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False)


def get(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def test_a_long_start_tells_how_far_it_is_and_then_serves_who_waited(start_server):
    http = f"127.0.0.1:{free_port()}"
    server = start_server(options=[f'http.listen = "{http}"'])
    address = f"{server.host}:{server.port}"
    for payload in ("a", "b"):
        put = lycosa("put", "mail", payload, "--create", "--address", address)
        assert put.returncode == 0, put.stderr
        server.restart()
    server.stop()
    journals = sorted((server.folder / "data").glob("*.xlog"))
    assert len(journals) >= 2, journals
    try:
        last = Lease(journals[-1])
    except OSError as refusal:
        pytest.skip(f"no leases on this file system: {refusal}")

    # The start looks at each journal once, in order, before it reads any.
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        wait_for(last.is_wanted, "the start does not open the last journal")
        pinged = lycosa("ping", "--address", address)
        assert pinged.returncode == 4, pinged
        assert "the server is starting: it opens its data folder" in pinged.stderr
        first = Lease(journals[0])
        last.release()
        wait_for(first.is_wanted, "the start does not read the first journal")

        # The snapshot is read, the journals are not.
        pinged = lycosa("ping", "--address", address)
        assert pinged.returncode == 4, pinged
        assert "the server is starting: it has read " in pinged.stderr, pinged
        assert get(http, "/livez") == (200, {"live": True})
        status, said = get(http, "/readyz")
        assert status == 503 and said["reasons"][0]["reason"] == "starting", said
        assert "it has read " in said["reasons"][0]["detail"], said
        assert get(http, "/health")[1]["status"] == "starting"
        assert get(http, "/v1/tubes")[1]["type"] == "urn:lycosa:problem:unavailable"
        # A command that does not want to wait long ends with the same text, one with more patience waits.
        for seconds in MORE_AND_MORE:
            hasty = lycosa("tube", "list", "--address", address, "--request-timeout", str(seconds))
            assert hasty.returncode == 4, hasty
            if "the server is starting" in hasty.stderr:
                break
        else:
            raise AssertionError(hasty)
        patient = subprocess.Popen(
            [binary(), "take", "mail", "--address", address, "--request-timeout", "300"],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        waiting = socket.create_connection((server.host, server.port), WAIT_SECONDS)
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        first.release()
        waiting.settimeout(WAIT_SECONDS)
        assert waiting.recv(9) == b"Tarantool", server.log()
        assert patient.communicate(timeout=WAIT_SECONDS)[0].strip(), "the task"
        assert patient.returncode == 0
    finally:
        last.release()
        starting.join()
    assert lycosa("ping", "--address", address).returncode == 0
    assert get(http, "/readyz") == (200, {"ready": True, "reasons": []})
    with server.connect() as sock:
        assert ask(sock, call(1, "queue.statistics"))
