"""Dashboard: everything that its pages share."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.job_notes import JobSource
from roquet.dashboard.resizes import Resizes
from roquet.dashboard.sampling.sampler import Sampler
from roquet.dashboard.security.audit_log import AuditLog
from roquet.dashboard.security.logins import LoginAttempts
from roquet.dashboard.security.sessions import Sessions
from roquet.model.errors import UsageError
from roquet.net.clock import Clock

STREAMS_MAX: Final = 32
"""Live tails at a time: each reads all queues of a topic."""

EACH_MAX: Final = 8
"""Live tails of one user: nobody takes those of all others."""


OPENING_MAX: Final = 2
"""Streams that are opened at a time: each makes a client of its own."""


class StreamSlots:
    """Slots of open streams."""

    def __init__(self, limit: int = STREAMS_MAX, each: int = EACH_MAX) -> None:
        self._limit = limit
        self._each = each
        self._open: Counter[str | None] = Counter()
        self.opening = asyncio.Semaphore(OPENING_MAX)
        """Held while a stream connects and finds its queues."""

    def is_full(self, user: str | None = None) -> bool:
        """Whether a user can open no further stream; None: visitors do not log in."""
        has_enough = user is not None and self._open[user] >= self._each
        return has_enough or self._open.total() >= self._limit

    @contextmanager
    def take(self, user: str | None = None) -> Iterator[None]:
        """Hold a slot while a stream is open. Raises UsageError when none is free for its user."""
        if self.is_full(user):
            raise UsageError("too many live tails are open already: close one of them")
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            self._open += Counter()  # without users who have none


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a dashboard: its own connection, its samples, its sessions, its audit log."""

    settings: DashboardConfig
    clock: Clock
    client: ClientConfig
    """Settings of clients that ask as the dashboard's own user."""
    admin: AdminClient
    """The dashboard's own connection: it samples, and answers where nobody logs in."""
    sampler: Sampler
    sessions: Sessions
    attempts: LoginAttempts
    audit: AuditLog
    resizes: Resizes
    streams: StreamSlots = msgspec.field(default_factory=StreamSlots)
    job_source: JobSource | None = None
    """Reads the notes of archives' tables; None where the packages for that are not installed."""
