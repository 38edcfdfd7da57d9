"""Clients of other kinds with the methods of `lycosa.Client` that a history needs: the plain connector, and HTTP with leases."""

import http.client
import json
import time

import lycosa
import tarantool

# Of leases, in seconds. A task whose answer was lost comes again after it.
LEASE = 6


class Task:
    """A task that a client has; `settle` ends or releases it."""

    def __init__(self, number, data, settle=None):
        self.id, self.data, self._settle = number, data, settle

    def ack(self):
        self._settle("ack")

    def release(self):
        self._settle("release")


class Connection(tarantool.Connection):
    """A connection that does not make itself anew without a word: the queue session would be another one."""

    def _opt_reconnect(self):
        if self._socket is None:
            raise tarantool.error.NetworkError("the connection is closed")


class PlainClient:
    """The connector `tarantool` at one address. It connects again by itself and joins its session, as a careful program does."""

    def __init__(self, address, patience):
        self.address, self.patience = address, patience
        self.session_changes = 0
        self.connection, self.session = None, None

    def tube(self, name):
        return PlainTube(self, name)

    def call(self, name, *args):
        """Calls a function. Its errors are those of the package `lycosa`."""
        if self.connection is None:
            self._connect()
        try:
            return self.connection.call(name, list(args)).data
        except (tarantool.error.NetworkError, OSError) as error:
            self.close()
            raise lycosa.Disconnected(str(error)) from error
        except tarantool.error.DatabaseError as error:
            raise refusal(error) from error

    def close(self):
        """Ends the connection. The session, and with it the tasks, lasts for `queue.ttr` longer."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _connect(self):
        host, port = self.address.rsplit(":", 1)
        try:
            self.connection = Connection(
                host,
                int(port),
                fetch_schema=False,
                encoding=None,  # a session is bytes
                socket_timeout=self.patience,
                connection_timeout=self.patience,
                reconnect_max_attempts=0,
            )
            self._identify()
        except (tarantool.error.DatabaseError, tarantool.error.NetworkError, OSError) as error:
            self.close()
            raise lycosa.ConnectionFailed(str(error)) from error

    def _identify(self):
        if self.session is not None:
            try:
                self.connection.call("queue.identify", [self.session])
                return
            except tarantool.error.DatabaseError as error:
                if "unknown" not in str(error) or "outcome" in str(error):
                    raise
                self.session_changes += 1
        self.session = self.connection.call("queue.identify", []).data[0]


class PlainTube:
    def __init__(self, client, name):
        self.client, self.name = client, name

    def _call(self, method, *args):
        answer = self.client.call(f"queue.tube.{self.name}:{method}", *args)
        # What Tarantool's module answers while it starts or ends.
        if method != "take" and (not answer or answer[0] is None):
            raise lycosa.Unavailable("the queue is not running")
        return answer

    def put(self, data):
        return Task(self._call("put", data.encode())[0][0], data)

    def take(self, seconds):
        found = self._call("take", seconds)
        if not found or found[0] is None:
            return None
        number, _, data = found[0]
        return Task(number, data.decode(), lambda method: self._call(method, number))

    def peek(self, number):
        return Task(number, self._call("peek", number)[0][2].decode())


def refusal(error):
    code, message = error.args[0], error.args[1]
    message = message.decode() if isinstance(message, bytes) else str(message)
    if "outcome of this request is unknown" in message:
        return lycosa.Disconnected(message)
    if "not taken" in message:
        return lycosa.NotTaken(code, message)
    if "not found" in message:
        return lycosa.NoSuchTask(code, message)
    return lycosa.ServerError(code, message)


class HttpClient:
    """HTTP at one address: tasks are leased. A lease that may have ended counts as a session that was lost."""

    def __init__(self, address, token, patience):
        self.address, self.token, self.patience = address, token, patience
        self.session_changes = 0
        self.connection = None

    def tube(self, name):
        return HttpTube(self, name)

    def ask(self, method, path, body=None):
        """The status and the JSON of an answer."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.address, timeout=self.patience)
            try:
                self.connection.connect()
            except OSError as error:
                self.close()
                raise lycosa.ConnectionFailed(str(error)) from error
        fields = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            self.connection.request(method, path, json.dumps(body) if body is not None else None, fields)
            answer = self.connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise lycosa.Disconnected(str(error)) from error
        found = json.loads(content) if content else None
        if answer.status >= 500 and b"Nothing was done" not in content:
            raise lycosa.Disconnected(f"{answer.status}: {content!r}")
        return answer.status, found

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class HttpTube:
    def __init__(self, client, name):
        self.client, self.path = client, f"/v1/tubes/{name}"

    def _ask(self, method, path, body=None):
        status, found = self.client.ask(method, self.path + path, body)
        if status == 404:
            raise lycosa.NoSuchTask(404, str(found))
        if status >= 400:
            raise lycosa.ServerError(status, str(found))
        return found

    def put(self, data):
        found = self._ask("POST", "/tasks", {"payload": data})
        return Task(int(found["id"]), data)

    def take(self, seconds):
        asked = time.monotonic()
        found = self._ask("POST", f"/take?wait={seconds}&lease={LEASE}&max=1")
        if not found or not found["tasks"]:
            return None
        [task] = found["tasks"]

        def settle(method):
            if time.monotonic() - asked > LEASE - 1:
                self.client.session_changes += 1
            wanted = {"acks": [task["lease"]]} if method == "ack" else {"releases": [{"lease": task["lease"]}]}
            try:
                self._ask("POST", "/settle", wanted)
            except lycosa.ServerError as error:
                raise lycosa.NotTaken(error.code, error.message) if "stale-lease" in error.message else error

        return Task(int(task["id"]), task["payload"], settle)

    def peek(self, number):
        return Task(number, self._ask("GET", f"/tasks/{number}")["payload"])
