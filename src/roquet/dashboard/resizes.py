"""Resizes: topics that are being resized in the background, and how far they are."""

import asyncio
from typing import Final

import msgspec

from roquet.admin import resizing
from roquet.admin.client import AdminClient
from roquet.log_records import logger
from roquet.model.errors import RoquetError, UsageError

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
