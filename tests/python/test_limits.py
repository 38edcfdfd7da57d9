"""Many connections, clients that do not read, and the memory all this may cost."""

import os
import resource
import socket
import threading
import time

import pytest

from protocol import EVAL, PING, ask, call, frame, read_reply

IDLE_CONNECTIONS = int(os.environ.get("LYCOSA_TEST_CONNECTIONS", 1000))
MIB = 1 << 20
PAYLOAD = "x" * 10_000


def raise_file_limit(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.fail(f"this machine allows {hard} open files, the test needs {wanted}: lower LYCOSA_TEST_CONNECTIONS")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def test_many_idle_connections(start_server):
    """They are answered, cost little memory each, and do not slow down the one that works."""
    raise_file_limit(IDLE_CONNECTIONS + 200)
    server = start_server()
    before = server.resident_bytes()
    socks = [server.connect() for _ in range(IDLE_CONNECTIONS)]
    try:
        for sock in socks:
            sock.sendall(frame(PING, 1))
        for sock in socks:
            assert read_reply(sock)[0] == 0
        each = (server.resident_bytes() - before) / IDLE_CONNECTIONS
        assert each < 64 * 1024, f"{each:.0f} bytes for each idle connection"
        worker = socks[0]
        ask(worker, call(2, "queue.create_tube", "t", "fifo"))
        for number in range(200):
            ask(worker, call(3, "queue.tube.t:put", number))
            [task] = ask(worker, call(4, "queue.tube.t:take", 0))
            ask(worker, call(5, "queue.tube.t:ack", task[0]))
    finally:
        for sock in socks:
            sock.close()


def test_many_waiting_takers(server):
    """Every connection waits for a task; each gets one, in the order in which they began to wait."""
    count = 200
    socks = [server.connect() for _ in range(count)]
    try:
        ask(socks[0], call(1, "queue.create_tube", "t", "fifo"))
        for sock in socks:
            sock.sendall(call(2, "queue.tube.t:take", 60))
            # So that the server reads them in this order.
            sock.sendall(frame(PING, 3))
            assert read_reply(sock)[1] == 3
        with server.connect() as producer:
            for number in range(count):
                ask(producer, call(4, "queue.tube.t:put", number))
        for number, sock in enumerate(socks):
            code, sync, body = read_reply(sock)
            assert (code, sync) == (0, 2)
            assert body[0x30] == [[number, "t", number]]
    finally:
        for sock in socks:
            sock.close()


def test_a_client_that_never_reads_holds_up_nobody(server):
    """It asks for much and reads nothing: the server stops reading from it instead of piling up replies without bound."""
    with server.connect() as worker:
        ask(worker, call(1, "queue.create_tube", "t", "fifo"))
        for _ in range(100):
            ask(worker, call(2, "queue.tube.t:put", PAYLOAD))
        before = server.resident_bytes()
        deaf = server.connect()
        stop = threading.Event()

        def shout():
            deaf.settimeout(0.5)
            requests = b"".join(call(sync, "queue.tube.t:peek", sync % 100) for sync in range(1000))
            sent = 0
            while not stop.is_set() and sent < 400 * len(requests):
                try:
                    sent += deaf.send(requests[sent % len(requests):])
                except (socket.timeout, ConnectionError):
                    return

        shouter = threading.Thread(target=shout)
        shouter.start()
        try:
            # The server answers another connection as long as the deaf one is read, and behind that.
            answered = 0
            while shouter.is_alive() or answered < 1000:
                ask(worker, call(3, "queue.tube.t:peek", 5))
                answered += 1
            # 400 000 replies of 10 kB would be 4 GB.
            grown = server.resident_bytes() - before
            assert grown < 256 * MIB, f"the server grew by {grown / MIB:.0f} MiB"
        finally:
            stop.set()
            shouter.join()
            deaf.close()


def test_a_large_pipeline_is_answered_in_full(server):
    """Ten thousand requests in one go, replies read only afterwards, as they come."""
    count = 10_000
    with server.connect(timeout=60) as sock:
        ask(sock, call(1, "queue.create_tube", "t", "fifo"))
        requests = b"".join(call(sync, "queue.tube.t:put", sync) for sync in range(2, count + 2))
        writer = threading.Thread(target=sock.sendall, args=(requests,))
        writer.start()
        syncs, ids = [], []
        for _ in range(count):
            code, sync, body = read_reply(sock)
            assert code == 0, body
            syncs.append(sync)
            ids.append(body[0x30][0][0])
        writer.join()
        assert syncs == list(range(2, count + 2))
        assert ids == list(range(count))


def test_memory_comes_back_when_tasks_are_done(server):
    """Ten rounds of filling and emptying cost no more than the first."""
    with server.connect(timeout=60) as sock:
        ask(sock, call(1, "queue.create_tube", "t", "fifo"))

        def fill_and_empty():
            for _ in range(10):
                batch = b"".join(call(sync, "queue.tube.t:put", PAYLOAD) for sync in range(100))
                sock.sendall(batch)
                ids = [read_reply(sock)[2][0x30][0][0] for _ in range(100)]
                sock.sendall(b"".join(call(task, "queue.tube.t:delete", task) for task in ids))
                for _ in range(100):
                    assert read_reply(sock)[0] == 0

        fill_and_empty()
        after_first = server.resident_bytes()
        for _ in range(9):
            fill_and_empty()
        assert server.resident_bytes() < after_first + 32 * MIB


def test_a_full_memory_refuses_and_recovers(start_server):
    """At its limit the server refuses what needs memory, with Tarantool's error 2, and still lets tasks be finished."""
    server = start_server(options=['memory_limit = "32MiB"'])
    with server.connect(timeout=60) as sock:
        ask(sock, call(1, "queue.create_tube", "t", "fifo"))
        batch = b"".join(call(sync, "queue.tube.t:put", PAYLOAD) for sync in range(200))
        codes = []
        while len(codes) < 10_000 and not any(codes):
            sock.sendall(batch)
            codes += [read_reply(sock)[0] for _ in range(200)]
        assert set(codes) == {0, 0x8002}
        for _ in range(100):
            [task] = ask(sock, call(2, "queue.tube.t:take", 0))
            [done] = ask(sock, call(3, "queue.tube.t:ack", task[0]))
            assert done[1] == "-"
        [task] = ask(sock, call(4, "queue.tube.t:put", PAYLOAD))
        assert task[1] == "r"


def test_clients_that_do_not_read_share_one_bound(start_server):
    """Fifty of them cost little more than max_output_total; who reads is served as before."""
    limit = 32 * MIB
    server = start_server(options=['max_output_total = "32MiB"'])
    worker = server.connect()
    ask(worker, call(1, "queue.create_tube", "t", "fifo"))
    ask(worker, call(2, "queue.tube.t:put", "x" * (512 << 10)))
    before = server.resident_bytes()
    socks = [server.connect() for _ in range(50)]
    try:
        peeks = b"".join(call(sync, "queue.tube.t:peek", 0) for sync in range(100))
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(peeks)
        # A machine that is busy with other programs may keep the worker from reading for a second: the server then counts
        # the worker among those who do not read, as its own clock tells, and the worker comes again.
        answers = 0
        for _ in range(40):
            try:
                assert len(ask(worker, call(3, "queue.tube.t:peek", 0))[0][2]) == 512 << 10
            except ConnectionError:
                worker = server.connect()
                continue
            answers += 1
            if answers == 20:
                break
            time.sleep(0.05)
        assert answers == 20, "a worker that reads is not served"
        grown = server.resident_bytes() - before
        assert grown < 3 * limit, f"{grown >> 20} MiB for replies that nobody reads"
    finally:
        for sock in socks:
            sock.close()
    ask(worker, call(5, "queue.tube.t:peek", 0))


def test_more_requests_than_fibers(server):
    """Requests of programs that wait, more than the system has mappings for fibers: each is answered, and others are served."""
    each, count = 3_300, 10
    request = frame(EVAL, 7, {0x27: "require('fiber').sleep(1) return ...", 0x21: [1]})
    socks = [server.connect() for _ in range(count)]
    answers = [[] for _ in socks]

    def work(sock, answered):
        threading.Thread(target=sock.sendall, args=(request * each,), daemon=True).start()
        answered.extend(read_reply(sock) for _ in range(each))

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in zip(socks, answers)]
    try:
        for thread in threads:
            thread.start()
        with server.connect() as other:
            while any(thread.is_alive() for thread in threads):
                ask(other, frame(PING, 1))
                time.sleep(0.01)
        wrong = [answer for answered in answers for answer in answered if answer != (0, 7, {0x30: [1]})]
        assert (wrong[:3], sum(map(len, answers))) == ([], each * count)
    finally:
        for sock in socks:
            sock.close()


EXECUTE = 11


def test_a_flood_of_statements_delays_no_other_client(server):
    """Thousands of SQL statements wait in line: a program of another client has its turn, and closed clients leave no work."""
    text = 'SELECT count(*) FROM "_vspace" AS a, "_vspace" AS b, "_vspace" AS c'
    each = 4000
    statements = b"".join(frame(EXECUTE, sync, {0x40: text, 0x41: []}) for sync in range(each))
    flooders = [server.connect() for _ in range(8)]
    answered = [0] * len(flooders)

    def read(place):
        try:
            while True:
                # Some statements are refused for want of memory.
                read_reply(flooders[place])
                answered[place] += 1
        except OSError:
            return

    with server.connect() as other:
        for sock in flooders:
            sock.sendall(statements)
        threads = [threading.Thread(target=read, args=(place,), daemon=True) for place in range(len(flooders))]
        for thread in threads:
            thread.start()
        for number in range(5):
            assert ask(other, frame(EVAL, 7, {0x27: "return ...", 0x21: [number]})) == [number]
            done = sum(answered)
            assert done < each, f"{done} of {8 * each} statements were answered before program {number}"
        for sock in flooders:
            sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(60)
        fibers = "local n = 0 for _ in pairs(require('fiber').info()) do n = n + 1 end return n"
        while ask(other, frame(EVAL, 7, {0x27: fibers, 0x21: []}))[0] > 20:
            time.sleep(0.01)


def test_a_program_goes_on_when_its_client_has_gone(server):
    """Also in the midst of a statement of SQL that pauses."""
    text = 'SELECT count(*) FROM "_vspace" AS a, "_vspace" AS b, "_vspace" AS c, "_vindex" AS d WHERE a."id" + d."id" < 0'
    program = "local fiber = require('fiber') fiber.sleep(0.05) local done = box.execute(...) rawset(_G, 'done', #done.rows)"
    with server.connect() as gone:
        gone.sendall(frame(EVAL, 7, {0x27: program, 0x21: [text]}))
        # The program has begun when another request of its connection is answered.
        gone.sendall(frame(EVAL, 8, {0x27: "return 1", 0x21: []}))
        assert read_reply(gone)[1] == 8
    with server.connect() as other:
        while ask(other, frame(EVAL, 9, {0x27: "return rawget(_G, 'done')", 0x21: []})) not in ([1], [[1]]):
            time.sleep(0.01)


def test_programs_that_wait_for_hours_leave_fibers_to_other_clients(server):
    """Eight clients ask for more fibers than there are: a program of the ninth is run."""
    request = frame(EVAL, 7, {0x27: "require('fiber').sleep(3600)", 0x21: []})
    socks = [server.connect() for _ in range(8)]
    try:
        for sock in socks:
            sock.sendall(request * 4000)
        for number in range(3):
            with server.connect() as other:
                assert ask(other, frame(EVAL, 7, {0x27: "return ...", 0x21: [number]})) == [number]
    finally:
        for sock in socks:
            sock.close()


def test_requests_for_programs_share_one_bound(start_server):
    """Clients that send large arguments without pause are not read further; a program of another client is run."""
    limit = 64 * MIB
    server = start_server(options=['max_input_total = "64MiB"'])
    request = frame(EVAL, 7, {0x27: "require('fiber').sleep(3600)", 0x21: ["x" * MIB]})
    before = server.resident_bytes()
    socks = [server.connect(timeout=4) for _ in range(16)]

    def send(sock):
        try:
            for _ in range(40):
                sock.sendall(request)
        except OSError:
            return

    threads = [threading.Thread(target=send, args=(sock,), daemon=True) for sock in socks]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with server.connect() as other:
            assert ask(other, frame(EVAL, 7, {0x27: "return ...", 0x21: [1]})) == [1]
            [net] = ask(other, call(1, "box.stat.net"))
            current = net["INPUT"]["current"]
            assert limit // 2 < current <= limit, f"{current >> 20} MiB of {limit >> 20} wait"
        grown = server.resident_bytes() - before
        assert grown < 4 * limit, f"{grown >> 20} MiB for {40 * len(socks)} MiB of requests"
    finally:
        for sock in socks:
            sock.close()
