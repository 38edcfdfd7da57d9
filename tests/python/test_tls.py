"""A connector that others made speaks TLS with the server."""

import pathlib

import pytest
import tarantool

from server import free_port

FILES = pathlib.Path(__file__).resolve().parents[2] / "crates" / "tls" / "test-files"


def test_the_connector_speaks_tls(start_server):
    port = free_port()
    options = [
        f'listen_tls = "127.0.0.1:{port}"',
        f'tls.certificate = "{FILES / "server.pem"}"',
        f'tls.key = "{FILES / "server.key"}"',
    ]
    start_server(options=options)
    connection = tarantool.Connection("127.0.0.1", port, transport="ssl", ssl_ca_file=str(FILES / "ca.pem"))
    connection.call("queue.create_tube", "t", "fifo")
    payload = "x" * 500_000
    assert connection.call("queue.tube.t:put", payload)[0] == [0, "r", payload]
    assert connection.call("queue.tube.t:take", 0)[0] == [0, "t", payload]
    connection.close()
    with pytest.raises(tarantool.error.DatabaseError):
        tarantool.Connection("127.0.0.1", port, transport="ssl", ssl_ca_file=str(FILES / "stranger.pem"))
