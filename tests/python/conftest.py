"""Fixtures: a fresh server for each test, checked at the end to have survived it."""

import pytest

from server import Server


@pytest.fixture
def start_server():
    """Starts servers with the given options; each is removed after the test."""
    servers = []

    def start(**options):
        server = Server(**options)
        servers.append(server)
        return server

    yield start
    for server in servers:
        try:
            if server.process is not None:
                server.check_alive()
                assert "panicked" not in server.log(), server.log()
        finally:
            server.remove()


@pytest.fixture
def server(start_server):
    return start_server()
