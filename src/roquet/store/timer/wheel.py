"""TimerWheel: one slot for each second of two weeks, after which slots are reused.

    second 1,700,000,000        …,001           …,002
    ┌──────────────────────┬───────────────┬──────────────┬─ …      timerwheel, 38 MB
    │ last ─▶ unit 9,104   │ another time's│ last ─▶ …    │
    └──────────────────────┴───────────────┴──────────────┴─ …

A slot that names another second is empty. Blocks for the whole file are allocated before the first
write, so that a full disk is an error and not a signal.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.rules.delay.timer import PRECISION_MS
from roquet.store.filesystem.mapped_file import PAGE_SIZE, MappedFile, MapPool
from roquet.store.timer.layout import NONE, SLOT, SLOT_SIZE, TimerSlot

log = logger(__name__)

_EMPTY_PAGE: Final = bytes(PAGE_SIZE)

_CHUNK_SIZE: Final = 64 * PAGE_SIZE
"""Bytes that are compared with zeros at once: a wheel that is used little is nearly all zeros."""

_EMPTY_CHUNK: Final = bytes(_CHUNK_SIZE)
_SLOTS_PER_PAGE: Final = PAGE_SIZE // SLOT_SIZE

EMPTIED_SLOT: Final = TimerSlot(NONE, NONE, 0)
"""The slot of a second whose messages were delivered before the clock was set back."""

SLOTS_PER_STEP: Final = 1_024
"""Used slots examined before others may run: about a millisecond."""


class TimerWheel:
    """Leads from a second to the units of the timer log that are due in it."""

    def __init__(self, pool: MapPool, path: Path, slots: int) -> None:
        self._pool = pool
        self._slots = slots
        self._file = MappedFile(pool, path, 0, slots * SLOT_SIZE)
        self.exists = False

    @property
    def span_ms(self) -> int:
        """The time after which a slot is reused."""
        return self._slots * PRECISION_MS

    def load(self, size: int | None) -> None:
        """Load the file of that size, None for none; a truncated one is deleted."""
        if size and size != self._file.size:
            log.warning(
                "%s has %d bytes instead of %d: it is rebuilt",
                self._file.path, size, self._file.size,
            )  # fmt: skip
            self._pool.files.remove(self._file.path)
        self.exists = size == self._file.size
        self._file.is_new = not self._pool.has_durable_names

    def prepare(self) -> None:
        """Create the file if needed, so that slots can be written. Raises StoreFull."""
        if not self.exists:
            self._file.create()
            self.exists = True
        self._file.extend(self._file.size, self._file.size)

    def slot(self, time_ms: int) -> TimerSlot | None:
        """The slot of a time's second; None if nothing waits then."""
        if not self.exists:
            return None
        second = time_ms // PRECISION_MS
        file = self._file
        view = file.mapped_view or file.view()
        stored, first, last, count, _ = SLOT.unpack_from(view, second % self._slots * SLOT_SIZE)
        return TimerSlot(first, last, count) if stored == second and last != NONE else None

    def next_used_ms(self, begin_ms: int, end_ms: int) -> int:
        """The first second of [begin_ms, end_ms) with a slot that is not empty; else end_ms.

        Both are whole seconds. Looks at a page of slots at a time: after a pause of a day, at 675
        pages instead of 86,400 slots.
        """
        second, end = begin_ms // PRECISION_MS, end_ms // PRECISION_MS
        if second >= end or not self.exists:
            return end_ms
        view = self._file.mapped_view or self._file.view()
        while second < end:
            at = second % self._slots
            count = min(_SLOTS_PER_PAGE - at % _SLOTS_PER_PAGE, self._slots - at, end - second)
            page = bytes(view[at * SLOT_SIZE : (at + count) * SLOT_SIZE])
            if not _EMPTY_PAGE.startswith(page):
                for number, (stored, _, last, _, _) in enumerate(SLOT.iter_unpack(page), second):
                    if stored == number and last != NONE:
                        return number * PRECISION_MS
            second += count
        return end_ms

    def count(self, begin_ms: int, end_ms: int) -> int:
        """Messages that wait in the seconds of [begin_ms, end_ms), as their slots count them."""
        second, end = begin_ms // PRECISION_MS, end_ms // PRECISION_MS
        if second >= end or not self.exists:
            return 0
        view, total = self._file.mapped_view or self._file.view(), 0
        while second < end:
            at = second % self._slots
            length = min(_SLOTS_PER_PAGE - at % _SLOTS_PER_PAGE, self._slots - at, end - second)
            page = bytes(view[at * SLOT_SIZE : (at + length) * SLOT_SIZE])
            if not _EMPTY_PAGE.startswith(page):
                for number, (stored, _, last, count, _) in enumerate(
                    SLOT.iter_unpack(page), second
                ):
                    if stored == number and last != NONE:
                        total += max(0, count)
            second += length
        return total

    def held_ms(self, time_ms: int) -> int:
        """The second whose slot occupies the place of a time's slot; 0 for none."""
        view, at = (
            self._file.mapped_view or self._file.view(),
            time_ms // PRECISION_MS % self._slots,
        )
        second, _, last, _, _ = SLOT.unpack_from(view, at * SLOT_SIZE)
        return int(second) * PRECISION_MS if last != NONE else 0

    def put(self, time_ms: int, slot: TimerSlot) -> None:
        """Set the slot of a time's second; `prepare` was called before."""
        second = time_ms // PRECISION_MS
        at = second % self._slots * SLOT_SIZE
        SLOT.pack_into(self._file.view(), at, second, slot.first, slot.last, slot.count, 0)
        self._file.mark_dirty()

    def is_emptied(self, time_ms: int) -> bool:
        """Whether a time's slot was emptied on purpose, and not set since."""
        file = self._file
        at = time_ms // PRECISION_MS % self._slots * SLOT_SIZE
        stored = SLOT.unpack_from(file.mapped_view or file.view(), at)
        return stored[:3] == (time_ms // PRECISION_MS, NONE, NONE)

    def blank(self, time_ms: int) -> None:
        """Empty the slot of a time's second."""
        at = time_ms // PRECISION_MS % self._slots * SLOT_SIZE
        self._file.view()[at : at + SLOT_SIZE] = bytes(SLOT_SIZE)
        self._file.mark_dirty()

    def blank_between(self, begin_ms: int, end_ms: int) -> Iterator[None]:
        """Empty the slots of [begin_ms, end_ms), some at a time. Raises StoreFull."""
        self.prepare()
        for number, (time_ms, _) in enumerate(self.used(), 1):
            if begin_ms <= time_ms < end_ms:
                self.put(time_ms, EMPTIED_SLOT)
            if number % SLOTS_PER_STEP == 0:
                yield

    def used(self) -> Iterator[tuple[int, TimerSlot]]:
        """Every slot that was ever set, with its time in ms; its pages are released afterwards."""
        if not self.exists:
            return
        view = self._file.view()
        for page in _used_pages(view):
            for second, first, last, count, _ in SLOT.iter_unpack(page):
                if second and last != NONE:
                    yield second * PRECISION_MS, TimerSlot(first, last, count)
        self._pool.files.release_pages(view, self._file.size)


def _used_pages(view: memoryview) -> Iterator[bytes]:
    """Pages of a wheel that are not all zeros."""
    for begin in range(0, len(view), _CHUNK_SIZE):
        chunk = bytes(view[begin : begin + _CHUNK_SIZE])
        if chunk != _EMPTY_CHUNK:
            pages = (chunk[at : at + PAGE_SIZE] for at in range(0, len(chunk), PAGE_SIZE))
            yield from (page for page in pages if page != _EMPTY_PAGE)
