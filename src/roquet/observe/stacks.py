"""Stacks: a dump of this process's threads and tasks as text."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

TASKS_MAX: Final = 500
"""Limit of tasks in a dump, which has to fit into a frame."""

DEPTH_MAX: Final = 50
"""Limit of calls of one stack, from the innermost one."""


def dump_stacks() -> str:
    """All threads, then the tasks of the running event loop."""
    return "\n".join((*_threads(), *_tasks(asyncio.all_tasks())))


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        name = names.get(ident, "?")
        yield _format_stack(f"{name:<40} TID: {ident} STATE: RUNNABLE", name, _lines(frame))


def _tasks(tasks: set[asyncio.Task[Any]]) -> Iterator[str]:
    ordered = sorted(tasks, key=lambda task: task.get_name())
    for task in ordered[:TASKS_MAX]:
        name = task.get_name()
        lines = [line for frame in _task_frames(task) for line in _lines(frame, 1)]
        yield _format_stack(f"{name:<40} TASK STATE: WAITING", name, lines)
    if len(ordered) > TASKS_MAX:
        yield f"... and {len(ordered) - TASKS_MAX} tasks more\n"


def _task_frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """The frames of a waiting task, the innermost one first."""
    found: list[FrameType] = []
    at: Any = task.get_coro()
    while len(found) < DEPTH_MAX and (
        frame := _first_attribute(at, "cr_frame", "gi_frame", "ag_frame")
    ):
        found.append(frame)
        at = _first_attribute(at, "cr_await", "gi_yieldfrom", "ag_await")
    return found[::-1]


def _first_attribute(thing: object, *names: str) -> Any:
    """The first attribute that an object has; coroutines of each kind have different ones."""
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)


def _lines(frame: FrameType, depth: int = DEPTH_MAX) -> list[str]:
    """The calls of a frame, the innermost one first."""
    summary = traceback.StackSummary.extract(
        traceback.walk_stack(frame), limit=depth, lookup_lines=False
    )
    return [f"{call.name}({call.filename}:{call.lineno})" for call in summary]


def _format_stack(title: str, name: str, lines: list[str]) -> str:
    """One stack in Java's format: each line begins with the thread's name."""
    return "".join((f"{title}\n", *(f"{name:<40} {line}\n" for line in lines)))
