"""A relay between the members of a group: it delays, narrows, holds back and cuts what one of them sends to another.

The members name the relay's addresses to each other. Who has opened a connection the relay learns from the system, by the process that owns the other end.
Bytes stay in order, and each arrives once: what is held back comes later, as from a network that TCP repairs.
"""

import asyncio
import contextlib
import os
import pathlib
import socket
import threading

PIECE = 1 << 16
# What is under way on a connection before its sender has to wait.
QUEUED = 32


class Path:
    """What happens to the bytes from a member to another."""

    def __init__(self):
        self.delay = 0.0
        self.rate = None
        self.is_held = False
        self.is_cut = False
        self.passed = 0
        self.connections = set()


def owner_of(port, processes):
    """The place in `processes` of the one with a connection of that local port."""
    wanted = f":{port:04X}"
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    inodes = {fields[9] for fields in map(str.split, lines) if fields[1].endswith(wanted) and fields[3] != "0A"}
    for number, process in enumerate(processes):
        if process is None:
            continue
        with contextlib.suppress(OSError):
            for file in os.scandir(f"/proc/{process.pid}/fd"):
                with contextlib.suppress(OSError):
                    if any(os.readlink(file.path) == f"socket:[{inode}]" for inode in inodes if inode != "0"):
                        return number
    return None


class Relay:
    """In front of the ports `targets` of members; `addresses` are what they name to each other, `processes()` gives their processes."""

    def __init__(self, targets, processes):
        self.targets, self.processes = targets, processes
        self.paths = {(source, target): Path() for source in range(len(targets)) for target in range(len(targets)) if source != target}
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in targets]
        self.addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in self.listeners]
        self.loop = asyncio.new_event_loop()
        # Connections that end with the relay are no news.
        self.loop.set_exception_handler(lambda *_: None)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def between(self, sources, targets):
        """The paths from some members to others."""
        return [path for (source, target), path in self.paths.items() if source in sources and target in targets]

    def around(self, number):
        """All paths from and to a member."""
        return [path for pair, path in self.paths.items() if number in pair]

    def slow_down(self, paths, delay=0.0, rate=None):
        """Bytes come `delay` seconds later, and at most `rate` of them in a second."""
        for path in paths:
            path.delay, path.rate = delay, rate

    def hold(self, paths):
        """Nothing arrives, and the sender gets no error."""
        for path in paths:
            path.is_held = True

    def cut(self, paths):
        """Connections end, and new ones are closed."""
        for path in paths:
            path.is_cut = True
            for writer in list(path.connections):
                self.loop.call_soon_threadsafe(writer.transport.abort)

    def heal(self):
        """Everything passes again, and what was held back arrives."""
        for path in self.paths.values():
            path.delay, path.rate, path.is_held, path.is_cut = 0.0, None, False, False

    def remove(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        for listener in self.listeners:
            listener.close()

    def _run(self):
        asyncio.set_event_loop(self.loop)
        servers = []
        for target, listener in enumerate(self.listeners):
            accept = lambda reader, writer, target=target: self._serve(target, reader, writer)
            servers.append(self.loop.run_until_complete(asyncio.start_server(accept, sock=listener)))
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def _serve(self, target, reader, writer):
        source = owner_of(writer.get_extra_info("peername")[1], self.processes())
        # A member that begins to lead serves the clients that it had before over its own address; the commands come from elsewhere.
        there, back = self.paths.get((source, target), Path()), self.paths.get((target, source), Path())
        far = None
        try:
            if there.is_cut or back.is_cut:
                return
            there.connections.add(writer)
            back.connections.add(writer)
            while there.is_held or back.is_held:
                await asyncio.sleep(0.005)
            far_reader, far = await asyncio.open_connection("127.0.0.1", self.targets[target])
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._forward(there, reader, far)),
                    asyncio.ensure_future(self._forward(back, far_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except OSError:
            pass
        finally:
            for path in (there, back):
                path.connections.discard(writer)
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()

    async def _forward(self, path, reader, writer):
        queue = asyncio.Queue(QUEUED)

        async def read():
            # A connection that is reset ends as well: the other side would wait for ever.
            with contextlib.suppress(OSError):
                while piece := await reader.read(PIECE):
                    await queue.put((self.loop.time(), piece))
            await queue.put((self.loop.time(), b""))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                came, piece = await queue.get()
                if not piece:
                    return
                await asyncio.sleep(max(0.0, came + path.delay - self.loop.time()))
                while path.is_held:
                    await asyncio.sleep(0.005)
                # In portions, so that a narrow path lets a little through at any time.
                while piece:
                    rate = path.rate
                    portion = piece if rate is None else piece[: max(1, rate // 50)]
                    writer.write(portion)
                    path.passed += len(portion)
                    await writer.drain()
                    piece = piece[len(portion) :]
                    if rate is not None:
                        await asyncio.sleep(len(portion) / rate)
        except OSError:
            return
        finally:
            reading.cancel()
