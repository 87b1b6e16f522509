"""ahead: the items of an iterator, made by a thread of their own a little before they are used."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")

BUFFERED_ITEMS: Final = 2
"""Items that wait: enough that neither thread waits for the other for long."""

STOP_CHECK_S: Final = 0.2
"""How soon the thread sees that nobody wants its items any more."""


class _EndOfItems:
    """There are no more items, or an error came instead of one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _PrefetchThread(Generic[T]):
    """The thread that makes the items."""

    def __init__(self, items: Iterable[T], depth: int) -> None:
        self._items = items
        self._waiting: Queue[T | _EndOfItems] = Queue(depth)
        self._unwanted = Event()
        self._thread = Thread(target=self._run, name="roquet-ahead", daemon=True)
        self._thread.start()

    def items(self) -> Iterator[T]:
        """What was made."""
        while not isinstance(item := self._waiting.get(), _EndOfItems):
            yield item
        if item.error is not None:
            raise item.error

    def stop(self) -> None:
        """Nothing more is wanted."""
        self._unwanted.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._items:
                self._hand_over(item)
                if self._unwanted.is_set():
                    return
            self._hand_over(_EndOfItems())
        except BaseException as error:
            self._hand_over(_EndOfItems(error))

    def _hand_over(self, item: T | _EndOfItems) -> None:
        while not self._unwanted.is_set():
            with suppress(Full):
                self._waiting.put(item, timeout=STOP_CHECK_S)
                return


@contextmanager
def prefetched(items: Iterable[T], depth: int = BUFFERED_ITEMS) -> Iterator[Iterator[T]]:
    """The same items; the thread ends with the block."""
    maker = _PrefetchThread(items, depth)
    try:
        yield maker.items()
    finally:
        maker.stop()
