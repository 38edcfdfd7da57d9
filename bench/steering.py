"""What scrapes, pages of find and a job of apply cost the workers of a full server.

    python3 bench/steering.py --binary target/release/lycosa

It starts a server of its own, fills it, and lets `lycosa bench run` do cycles at 8 x 32: alone, beside a hundred clients that ask
for what the open page asks for each second, and beside a scrape of /metrics each second, ten clients that page through tubes with
find, and jobs that bury and kick all tasks of one large tube. The kinds of rounds alternate. It prints one JSON object: rates, p99, processor time of the server per cycle, the longest turn so far by
the processor's time after each round, and how long scrapes took. Only Python's own library is needed.

With `--pin` the server's loop has the first core for itself, everything else shares the second one, and the clients that stand for
operators come last there. So what the workers lose is what the loop loses, and not what the clients take from each other.
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

# Variables of this name are settings to the program, and those of a test are not meant.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("LYCOSA_")}
CALL = 0x0A
BATCH = 1_000


def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return bytes([value]) if value < 0x80 else struct.pack(">BQ", 0xCF, value)
    if isinstance(value, str):
        data = value.encode()
        return struct.pack(">BI", 0xDB, len(data)) + data
    if isinstance(value, list):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
    pairs = b"".join(pack(name) + pack(member) for name, member in value.items())
    return struct.pack(">BI", 0xDF, len(value)) + pairs


SIZES = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q", 0xCA: ">f", 0xCB: ">d"}
LENGTHS = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}


def unpack(data, place=0):
    """The value at a place, and the place behind it."""

    def number(form):
        return struct.unpack_from(form, data, place + 1)[0], place + 1 + struct.calcsize(form)

    def items(count, at, pairs):
        found = []
        for _ in range(count * (2 if pairs else 1)):
            item, at = unpack(data, at)
            found.append(item)
        return (dict(zip(found[::2], found[1::2])) if pairs else found), at

    tag = data[place]
    if tag < 0x80:
        return tag, place + 1
    if tag >= 0xE0:
        return tag - 256, place + 1
    if tag < 0x90:
        return items(tag & 15, place + 1, True)
    if tag < 0xA0:
        return items(tag & 15, place + 1, False)
    if tag < 0xC0:
        end = place + 1 + (tag & 31)
        return data[place + 1 : end].decode(errors="replace"), end
    if tag in SIZES:
        return number(SIZES[tag])
    if tag in LENGTHS:
        length, at = number(LENGTHS[tag])
        return data[at : at + length].decode(errors="replace"), at + length
    if tag in (0xDC, 0xDD, 0xDE, 0xDF):
        count, at = number(">H" if tag in (0xDC, 0xDE) else ">I")
        return items(count, at, tag >= 0xDE)
    if 0xD4 <= tag <= 0xD8:
        return None, place + 2 + (1 << (tag - 0xD4))
    return {0xC2: False, 0xC3: True}.get(tag), place + 1


class Client:
    """A connection to the server."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), 600)
        self.read(128)
        self.sync = 0

    def read(self, count):
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise OSError("the server has closed the connection")
            data += piece
        return data

    def call(self, name, *arguments):
        self.sync += 1
        body = pack({0x00: CALL, 0x01: self.sync}) + pack({0x22: name, 0x21: list(arguments)})
        self.sock.sendall(struct.pack(">BI", 0xCE, len(body)) + body)
        length, _ = unpack(self.read(5))
        answer = self.read(length)
        header, at = unpack(answer)
        body, _ = unpack(answer, at)
        if header[0x00] != 0:
            raise RuntimeError(f"{name}: {body.get(0x31)}")
        return body[0x30][0] if body.get(0x30) else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processor_seconds(stat):
    """The processor time in a file of /proc, user and kernel."""
    fields = pathlib.Path(stat).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """A server with HTTP, in a folder that goes away."""

    def __init__(self, binary, wal_mode):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lycosa-steering-", dir=os.environ.get("TMPDIR")))
        self.port, self.http = free_port(), free_port()
        configuration = self.folder / "lycosa.toml"
        configuration.write_text(
            f'listen = "127.0.0.1:{self.port}"\ndata_dir = "{self.folder}/data"\nwal_mode = "{wal_mode}"\n'
            f'http.listen = "127.0.0.1:{self.http}"\nmemory_limit = "16GiB"\n\n'
            '[[user]]\nname = "guest"\nroles = ["super"]\n'
        )
        (self.folder / "data").mkdir()
        self.command = [binary, "serve", "--config", str(configuration)]
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=open(self.folder / "log", "wb"),
            stderr=subprocess.STDOUT,
            env=ENVIRONMENT,
        )
        while True:
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
            try:
                Client(self.port)
                return
            except OSError:
                time.sleep(0.05)

    def processor_seconds(self):
        """Of all threads, and of the loop."""
        pid = self.process.pid
        return processor_seconds(f"/proc/{pid}/stat"), processor_seconds(f"/proc/{pid}/task/{self.loop()}/stat")

    def loop(self):
        """The thread of the loop: it has the name of the program, as the first thread has."""
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if thread.name != str(self.process.pid) and (thread / "comm").read_text().strip() == "lycosa":
                return int(thread.name)
        raise RuntimeError("the server has no thread of the loop")

    def pin(self):
        """The loop gets the first core for itself, the server's other threads the second one."""
        loop = self.loop()
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {0 if int(thread.name) == loop else 1})

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def fill(client, tubes, tasks, large):
    """Makes the tubes; the first one gets `large` tasks, the others share the rest."""
    payload = "x" * 64
    for number in range(tubes):
        client.call("queue.create_tube", f"t{number}", "fifottl", {"if_not_exists": True})
        left = large if number == 0 else (tasks - large) // max(tubes - 1, 1)
        while left > 0:
            count = min(left, BATCH)
            client.call(f"queue.tube.t{number}:put_many", [payload] * count)
            left -= count


class Clients:
    """Clients with a thread each, until they are told to end. Workers come before them on a core that they share."""

    def __init__(self, work):
        self.is_over = threading.Event()
        self.failures = []
        self.threads = [threading.Thread(target=self.guarded, args=(each,)) for each in work]
        for thread in self.threads:
            thread.start()

    def guarded(self, work):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        try:
            work()
        except Exception as error:  # A failure of a client is a failure of the run.
            self.failures.append(repr(error))

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise RuntimeError("; ".join(self.failures[:3]))


class Beside(Clients):
    """Scrapes, pages of find, and jobs, until they are told to end; at least one page of each finder and one whole job."""

    def __init__(self, server, tubes, finders):
        self.server, self.tubes = server, tubes
        self.scrapes, self.pages, self.jobs = [], 0, []
        super().__init__([self.scrape, self.apply] + [lambda number=number: self.find(number) for number in range(finders)])

    def scrape(self):
        while not self.is_over.wait(1):
            began = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{self.server.http}/metrics", timeout=600) as answer:
                size = len(answer.read())
            self.scrapes.append((time.monotonic() - began, size))

    def find(self, number):
        client = Client(self.server.port)
        tube = number % self.tubes
        cursor = None
        own = 0
        while own == 0 or not self.is_over.is_set():
            options = {"limit": 100} if cursor is None else {"limit": 100, "cursor": cursor}
            page = client.call(f"queue.tube.t{tube}:find", {"field": "none", "equals": "nothing"}, options)
            self.pages += 1
            own += 1
            cursor = page.get("cursor")
            if cursor is None:
                tube = (tube + 10) % self.tubes

    def apply(self):
        client = Client(self.server.port)
        while True:
            for operation, state in (("bury", "ready"), ("kick", "buried")):
                began = time.monotonic()
                job = client.call("queue.tube.t0:apply", operation, {"state": state, "all": True})
                while job["state"] == "running" and not (self.jobs and self.is_over.is_set()):
                    time.sleep(0.2)
                    job = client.call("queue.tube.t0:job", job["id"])
                if job["state"] == "running":
                    job = self.cancelled(client, job["id"])
                self.jobs.append((operation, job["changed"], time.monotonic() - began))
                if self.is_over.is_set():
                    return

    @staticmethod
    def cancelled(client, job):
        """The job after its cancellation, or as it ended in the moment before."""
        try:
            return client.call("queue.tube.t0:control", job, "cancel")
        except RuntimeError:
            ended = client.call("queue.tube.t0:job", job)
            if ended["state"] == "running":
                raise
            return ended


class Pages(Clients):
    """Clients that each second ask for what an open overview asks for, each on a connection of its own."""

    def __init__(self, server, token, count):
        self.server, self.token = server, token
        self.refreshes = []
        super().__init__([lambda delay=number / count: self.watch(delay) for number in range(count)])

    def watch(self, delay):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http, timeout=600)
        tags = {}

        def get(path):
            headers = {"Authorization": f"Bearer {self.token}", "Cache-Control": "max-age=1"}
            if path in tags:
                headers["If-None-Match"] = tags[path]
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status == 304:
                return
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {body[:200]}")
            tags[path] = answer.getheader("ETag")

        self.is_over.wait(delay)
        while True:
            began = time.monotonic()
            get("/health")
            get("/v1/overview")
            self.refreshes.append(time.monotonic() - began)
            if self.is_over.wait(max(0, began + 1 - time.monotonic())):
                return


def cycles(binary, server, count):
    """Cycles at 8 x 32: what `lycosa bench run` says, and the processor time of one in µs: the server's, and its loop's."""
    before = server.processor_seconds()
    arguments = ["--address", f"127.0.0.1:{server.port}", "--connections", "8", "--depth", "32", "--cycles", str(count), "--json"]
    # A warm-up would take processor time too.
    arguments += ["--warmup", "0"]
    ran = subprocess.run([binary, "bench", "run", *arguments], capture_output=True, text=True, env=ENVIRONMENT)
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr)
    used = [(after - former) / count * 1e6 for after, former in zip(server.processor_seconds(), before)]
    return json.loads(ran.stdout.splitlines()[-1]), *used


def longest_turns(client):
    """The longest turn since the start by the processor's time, in µs: as a whole, and of each part. A round that has a longer one raises it."""
    info = client.call("box.info")
    return {"turn": info["longest_turn_cpu"]["cpu_us"], **info["longest_turns_cpu_us"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/lycosa")
    parser.add_argument("--tasks", type=int, default=10_000_000)
    parser.add_argument("--large", type=int, default=1_000_000, help="tasks of the tube that jobs change")
    parser.add_argument("--tubes", type=int, default=2_000)
    parser.add_argument("--finders", type=int, default=10)
    parser.add_argument("--pages", type=int, default=100, help="open pages")
    parser.add_argument("--cycles", type=int, default=300_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind")
    parser.add_argument("--wal-mode", default="fsync")
    parser.add_argument("--pin", action="store_true", help="the loop has a core for itself")
    arguments = parser.parse_args()
    server = Server(arguments.binary, arguments.wal_mode)
    try:
        began = time.monotonic()
        fill(Client(server.port), arguments.tubes, arguments.tasks, arguments.large)
        result = {"tasks": arguments.tasks, "tubes": arguments.tubes, "filled_seconds": time.monotonic() - began}
        # The turns of the filling, with batches of a thousand tasks, are left out: a new process has no longest turn yet.
        server.stop()
        server.start()
        client = Client(server.port)
        while client.call("box.info")["status"] != "running":
            time.sleep(0.1)
        if arguments.pin:
            server.pin()
            os.sched_setaffinity(0, {1})
        rounds = {"alone": [], "pages": [], "beside": []}
        scrapes, jobs, pages, refreshes, longest = [], [], 0, [], []
        token = client.call("lycosa.token.add", "pages", {"role": "administrator", "tubes": ["*"]})["secret"]
        for _ in range(arguments.rounds):
            rounds["alone"].append(cycles(arguments.binary, server, arguments.cycles))
            longest.append(("alone", longest_turns(client)))
            watchers = Pages(server, token, arguments.pages)
            try:
                rounds["pages"].append(cycles(arguments.binary, server, arguments.cycles))
            finally:
                watchers.end()
            longest.append(("pages", longest_turns(client)))
            refreshes += watchers.refreshes
            beside = Beside(server, arguments.tubes, arguments.finders)
            try:
                rounds["beside"].append(cycles(arguments.binary, server, arguments.cycles))
            finally:
                beside.end()
            longest.append(("beside", longest_turns(client)))
            scrapes, jobs, pages = scrapes + beside.scrapes, jobs + beside.jobs, pages + beside.pages
        result["rounds"] = {
            kind: [{"run": run, "cpu_us": used, "loop_cpu_us": loop} for run, used, loop in of_kind] for kind, of_kind in rounds.items()
        }
        result["cpu_us_per_cycle"] = {kind: statistics.median(used for _, used, _ in of_kind) for kind, of_kind in rounds.items()}
        result["loop_cpu_us_per_cycle"] = {kind: statistics.median(loop for _, _, loop in of_kind) for kind, of_kind in rounds.items()}
        result["scrapes"] = {
            "count": len(scrapes),
            "bytes": max((size for _, size in scrapes), default=0),
            "median_ms": statistics.median(seconds for seconds, _ in scrapes) * 1e3 if scrapes else None,
            "longest_ms": max((seconds for seconds, _ in scrapes), default=0) * 1e3,
        }
        result["pages"], result["jobs"] = pages, jobs
        result["refreshes"] = {
            "count": len(refreshes),
            "median_ms": statistics.median(refreshes) * 1e3 if refreshes else None,
            "longest_ms": max(refreshes, default=0) * 1e3,
        }
        result["longest_turns_cpu_us"] = longest
        print(json.dumps(result))
    finally:
        server.remove()


if __name__ == "__main__":
    main()
