"""The client and the worker for asyncio, on top of the connector `asynctnt` (`pip install lycosa[asyncio]`)."""

from .client import Client, Task, Tube
from .worker import Worker

__all__ = ["Client", "Task", "Tube", "Worker"]
