"""Prefetch: a thread of its own makes the items of an iterator shortly before they are used."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")

BUFFERED_ITEMS: Final = 2
"""Default buffer size: enough that neither thread waits for the other for long."""

STOP_CHECK_S: Final = 0.2
"""How often the thread checks, while the buffer is full, whether it shall stop."""


class _EndOfItems:
    """Ends the buffer: there are no more items, or an error was raised instead of one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _PrefetchThread(Generic[T]):
    """A thread that fills a bounded buffer."""

    def __init__(self, items: Iterable[T], depth: int) -> None:
        self._items = items
        self._buffer: Queue[T | _EndOfItems] = Queue(depth)
        self._is_stopped = Event()
        self._thread = Thread(target=self._run, name="roquet-prefetch", daemon=True)
        self._thread.start()

    def items(self) -> Iterator[T]:
        """The items; an error of the source is raised in the place of its item."""
        while not isinstance(item := self._buffer.get(), _EndOfItems):
            yield item
        if item.error is not None:
            raise item.error

    def stop(self) -> None:
        """End the thread, and wait for that."""
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._items:
                self._put(item)
                if self._is_stopped.is_set():
                    return
            self._put(_EndOfItems())
        except BaseException as error:
            self._put(_EndOfItems(error))

    def _put(self, item: T | _EndOfItems) -> None:
        while not self._is_stopped.is_set():
            with suppress(Full):
                self._buffer.put(item, timeout=STOP_CHECK_S)
                return


@contextmanager
def prefetched(items: Iterable[T], depth: int = BUFFERED_ITEMS) -> Iterator[Iterator[T]]:
    """Iterate over items that a thread makes up to `depth` ahead; it ends with the block."""
    thread = _PrefetchThread(items, depth)
    try:
        yield thread.items()
    finally:
        thread.stop()
