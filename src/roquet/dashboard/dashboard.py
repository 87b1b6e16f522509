"""Dashboard: everything that its pages share."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from roquet.admin import resizing
from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.sampling.jobs import JobSampler, JobSource
from roquet.dashboard.sampling.letter_tally import LetterTallies
from roquet.dashboard.sampling.sampler import Sampler
from roquet.dashboard.security.audit_log import AuditLog
from roquet.dashboard.security.logins import LoginAttempts
from roquet.dashboard.security.sessions import Sessions
from roquet.log_records import logger
from roquet.model.errors import RoquetError, UsageError
from roquet.net.clock import Clock

log = logger(__name__)

RESIZES_MAX: Final = 20
"""Topics that are resized at a time, and ended ones that are remembered."""


class ResizeProgress(msgspec.Struct, kw_only=True):
    """A resize of a topic."""

    topic: str
    queues: int
    user: str | None
    text: str = "begins"
    waiting: dict[str, int] = {}
    """Messages that each group has still to handle in queues that are to go."""
    left_ms: int = 0
    is_over: bool = False
    error: str | None = None


class Resizes:
    """Resizes by topic. They end with the dashboard, or with the login of who began them."""

    def __init__(self) -> None:
        self._known: dict[str, ResizeProgress] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def progress(self, topic: str) -> ResizeProgress | None:
        """The newest resize of a topic; None without any."""
        return self._known.get(topic)

    def begin(self, admin: AdminClient, topic: str, queues: int, user: str | None) -> None:
        """Begin to resize a topic. Raises UsageError while it, or too many others, are at it."""
        known = self._known.get(topic)
        if known is not None and not known.is_over:
            raise UsageError(f"topic {topic!r} is being resized to {known.queues} queues")
        self._known.pop(topic, None)
        over = [name for name, one in self._known.items() if one.is_over]
        for name in over[: max(len(self._known) + 1 - RESIZES_MAX, 0)]:
            del self._known[name]
        if len(self._known) >= RESIZES_MAX:
            raise UsageError(f"{RESIZES_MAX} topics are being resized: wait for one of them")
        progress = self._known[topic] = ResizeProgress(topic=topic, queues=queues, user=user)
        task = asyncio.create_task(self._run(admin, progress))
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._end(ended, progress))

    async def close(self) -> None:
        """Stop every resize: nothing is lost, and it can be begun again."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self, task: asyncio.Task[None], progress: ResizeProgress) -> None:
        progress.is_over = True
        self._tasks.discard(task)

    async def _run(self, admin: AdminClient, progress: ResizeProgress) -> None:
        try:
            steps = resizing.resize(admin, progress.topic, progress.queues, clock=admin.clock)
            async for step in steps:
                progress.text, progress.waiting = step.doing, dict(step.waiting)
                progress.left_ms = step.left_ms
            progress.text, progress.waiting, progress.left_ms = "done", {}, 0
        except RoquetError as error:
            progress.error = str(error)
        except Exception as error:
            log.exception("the resize of %s failed", progress.topic)
            progress.error = type(error).__name__


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
    letter_tallies: LetterTallies = msgspec.field(default_factory=LetterTallies)
    job_source: JobSource | None = None
    """Reads the notes of archives' tables; None where the packages for that are not installed."""
    jobs: JobSampler | None = None
    """Samples of those notes; None without tables, or without the packages."""
