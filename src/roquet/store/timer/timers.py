"""Timers: the door to what waits for its delivery time: add, look, go on, save.

    rmq_sys_wheel_timer ──offset──▶ timer log ◀── wheel ◀──read ms── time
                                        │
                                  config/timercheck: how far both are

Everything lies in the genuine broker's files, and nothing of a message in memory. There are no
files before the first message. What the checkpoint says was on the disk before it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreFailed
from roquet.rules.delay.timer import PRECISION_MS, floor_ms, is_delete
from roquet.store.config import MIB
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import Files
from roquet.store.filesystem.mapped_file import MappedFile, MapPool
from roquet.store.timer.layout import (
    CHECKPOINT_SIZE,
    NONE,
    WHEEL_SLOTS,
    TimerCheckpoint,
    TimerSlot,
    TimerUnit,
    pack_checkpoint,
    unpack_checkpoint,
)
from roquet.store.timer.log import TimerLog
from roquet.store.timer.recovery import TimerOffsetLookup, is_plausible, recover
from roquet.store.timer.wheel import SLOTS_PER_STEP, TimerWheel

log = logger(__name__)

MAPS_MAX: Final = 16
"""Files of the timer log held at once: each has two million messages."""

CURSOR_NOT_BEGUN: Final = (0, 0)

STALE_MS: Final = 60_000
"""A checkpoint whose second lies so far back is written anew, though nothing was delivered."""


class TimerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How timers lay out their files, at the genuine defaults."""

    wheel_slots: int = WHEEL_SLOTS
    log_file_size: int = 100 * MIB
    log_step: int = MIB
    """Bytes of the timer log that get their blocks on the disk at a time."""


class TimerStore:
    """What waits for its delivery time in one data directory."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        offset_of: TimerOffsetLookup,
        now_ms: int,
        config: TimerConfig | None = None,
    ) -> None:
        """Take the files that are there, and recover them. Raises StoreError for odd ones."""
        config = config or TimerConfig()
        self._files = files
        self._directory = directory
        self._path = directory / "config" / "timercheck"
        self._page: memoryview | None = None
        self._pool = MapPool(files, MAPS_MAX)
        self._pool.has_sure_names = False  # whether the process before was killed is not known here
        self._wheel = TimerWheel(self._pool, directory / "timerwheel", config.wheel_slots)
        self._log = TimerLog(
            self._pool, directory / "timerlog", config.log_file_size, config.log_step
        )
        self._unsynced: dict[MappedFile, None] = {}
        self._saved = self._read()
        self._failure: StoreFailed | None = None
        self.on_failure: Callable[[str], object] = lambda _: None
        """Told why, when the disk has lost what it was given."""
        try:
            self._load(offset_of, now_ms)
        except OSError as error:
            raise store_error(directory, error) from error

    def _load(self, offset_of: TimerOffsetLookup, now_ms: int) -> None:
        if not is_plausible(self._saved, now_ms):
            log.warning("%s is damaged: what waits is read again from its topic", self._path)
            self._saved = TimerCheckpoint()
        saved = self._saved
        self._wheel.load(self._files.list(self._directory).get("timerwheel"))
        self._log.load(self._files.list(self._log.segments.directory))
        found = recover(self._wheel, self._log, saved, offset_of)
        self.offset = found.offset
        """Of the timer topic's next message."""
        self.replayed = (saved.offset, saved.read_ms)
        """Messages before that offset of seconds before that one were delivered already."""
        earliest_ms = min(found.read_ms or now_ms, now_ms)
        self.read_ms = floor_ms(saved.read_ms or earliest_ms)
        """The second that is being delivered, or is next."""
        self.cursor = saved.cursor or CURSOR_NOT_BEGUN
        """In that second, until when (ms) and at which unit it is delivered."""
        # Units of before the crash must not come back after the next one, among new ones.
        self._sync(self._pool.take_dirty())
        self.unsaved = False

    def _read(self) -> TimerCheckpoint:
        try:
            return unpack_checkpoint(self._files.read(self._path))
        except FileNotFoundError:
            return TimerCheckpoint()
        except OSError as error:
            raise store_error(self._path, error) from error

    # -- look --------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether anything ever waited here."""
        return self._wheel.exists

    @property
    def log_end(self) -> int:
        """Where the next unit goes."""
        return self._log.end

    def slot(self, time_ms: int) -> TimerSlot | None:
        """What waits in the second of a time; None for nothing."""
        return self._wheel.slot(time_ms)

    def seconds_from(self, begin_ms: int) -> Iterator[int | None]:
        """Each second from a time on in which something waits; None now and then, for a pause."""
        for number, (time_ms, _) in enumerate(self._wheel.used(), 1):
            if time_ms >= begin_ms:
                yield time_ms
            if number % SLOTS_PER_STEP == 0:
                yield None

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position of the timer log, if it is still there."""
        return self._log.unit(position)

    def free_slot_ms(self, slot_ms: int) -> int | None:
        """The second where a message may wait that wants this one; None: not before others are out.

        A place on the wheel is not given away while it may be needed for an earlier second. It may
        be that of a later one where the clock was set back by weeks: then the next free one is it.
        """
        if not self.exists:
            return slot_ms
        oldest_ms = min(self._saved.read_ms or self.read_ms, self.read_ms)
        for at_ms in range(slot_ms, oldest_ms + self._wheel.span_ms, PRECISION_MS):
            held_ms = self._wheel.held_ms(at_ms)
            if held_ms == at_ms or held_ms < oldest_ms:
                return at_ms
        return None

    def has_wait_over(self, wait_ms: int) -> bool:
        """Whether anything that waits was put into its second earlier than so long before it."""
        firsts = ((at, self.unit(s.first)) for at, s in self._wheel.used() if at >= self.read_ms)
        return any(first and at - first.write_ms > wait_ms for at, first in firsts)

    @property
    def is_saved(self) -> bool:
        """Whether the disk knows all of this."""
        return self.checkpoint() == self._saved

    # -- write -------------------------------------------------------------------------------

    def add(self, unit: TimerUnit) -> int:
        """One more in its slot; gives the unit's position. Raises StoreFull."""
        self._wheel.make()
        slot = self._wheel.slot(unit.slot_ms)
        position = self._log.append(unit, slot.last if slot else NONE)
        worth = -1 if is_delete(unit.magic) else 1
        if slot is None:
            self._wheel.put(unit.slot_ms, TimerSlot(position, position, worth))
        else:
            self._wheel.put(unit.slot_ms, TimerSlot(slot.first, position, slot.count + worth))
        self.unsaved = True
        return position

    def advance_offset(self, offset: int) -> None:
        """The timer topic's messages in front of an offset are dealt with."""
        if offset != self.offset:
            self.offset = offset
            self.unsaved = True

    def note_delivered(self, due_ms: int, position: int) -> None:
        """In the second that is being delivered, everything up to that time and unit."""
        self.cursor = (due_ms, position)
        self.unsaved = True

    def advance_to(self, read_ms: int) -> None:
        """Everything before that second was delivered."""
        assert read_ms % PRECISION_MS == 0, "a second begins there"
        self.read_ms, self.cursor = read_ms, CURSOR_NOT_BEGUN
        if self.exists and read_ms - self._saved.read_ms >= STALE_MS:
            self.unsaved = True

    def rewind(self, read_ms: int) -> Iterator[None]:
        """Go back to an earlier second, some of them at a time: the clock was set back.

        What waited in seconds since then was delivered: it must not come again as their time does.
        A loss of power in between finds the same as before, or less of it.
        """
        assert self.is_saved, "seconds whose deliveries may be lost are not emptied"
        yield from self._wheel.blank_between(read_ms, self.read_ms)
        self.advance_to(read_ms)
        self.unsaved = True

    def clear_seconds(self, seconds: Sequence[int]) -> Iterator[None]:
        """Empty seconds whose messages were all written again, some of them at a time."""
        assert self.is_saved, "seconds are emptied when the disk knows what was written again"
        for number, time_ms in enumerate(seconds, 1):
            self._wheel.blank(time_ms)
            if number % SLOTS_PER_STEP == 0:
                yield
        self.unsaved = True

    # -- keep --------------------------------------------------------------------------------

    def checkpoint(self) -> TimerCheckpoint:
        """How far the timers are."""
        return msgspec.structs.replace(
            self._saved,
            read_ms=self.read_ms,
            log_end=self._log.end,
            offset=self.offset,
            master_offset=self.offset,
            cursor=self.cursor,
        )

    def save_task(self, now_ms: int) -> Callable[[], None] | None:
        """The work of making all of now durable; None when nothing has changed.

        It may be done in another thread, after the commit log was made durable. Who does not get
        it done sets `unsaved` again.
        """
        if self._failure is not None:
            raise self._failure
        if not self.unsaved:
            return None
        self.unsaved = False
        checkpoint = msgspec.structs.replace(
            self.checkpoint(), changed_ms=now_ms, changes=self._saved.changes + 1
        )
        self._unsynced |= dict.fromkeys(self._pool.take_dirty())
        dirty = list(self._unsynced)

        def run() -> None:
            try:
                self._sync(dirty)
                self._write(checkpoint)
            except OSError as error:
                # The system may have dropped them: a second try would succeed and prove nothing.
                reason = f"{self._path} could not be made durable ({error})"
                self._failure = StoreFailed(f"{reason}: look at the disk, then restart")
                self.on_failure(reason)
                raise self._failure from error
            self._saved = checkpoint
            for file in dirty:
                self._unsynced.pop(file)

        return run

    def _sync(self, dirty: list[MappedFile]) -> None:
        for file in dirty:
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                self._files.sync(file.path, file.held)
        fresh = [file for file in dirty if file.is_new]
        for directory in sorted({file.path.parent for file in fresh}, reverse=True):
            self._files.sync(directory)
        if fresh:
            self._files.sync(self._directory)
        for file in fresh:
            file.is_new = False
        self._log.forget()

    def _write(self, checkpoint: TimerCheckpoint) -> None:
        files = self._files
        if self._page is None:
            files.create(self._path, CHECKPOINT_SIZE)
            files.allocate(self._path, 0, CHECKPOINT_SIZE)
            files.sync(self._path.parent)
            files.sync(self._directory)
            self._page = files.map(self._path, CHECKPOINT_SIZE)
        self._page[:] = pack_checkpoint(checkpoint)
        files.sync(self._path, self._page)

    def expire(self, position: int) -> Path | None:
        """Delete units whose records lay in front of a position of the commit log: one file."""
        return self._log.drop_before(position)

    def close(self) -> None:
        """Let the files go."""
        self._pool.drop_all()
        self._page = None
