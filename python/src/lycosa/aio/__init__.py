"""The client and the worker for asyncio, on top of the connector `asynctnt` (`pip install lycosa[asyncio]`)."""

from .client import Client, Lease, Task, Tube
from .worker import Worker

__all__ = ["Client", "Lease", "Task", "Tube", "Worker"]
