"""TimerStore: the messages that wait for their delivery time: add, read, advance, save.

    rmq_sys_wheel_timer ──offset──▶ timer log ◀── wheel ◀──read ms── time
                                        │
                                  config/timercheck: how far both are

Everything is in the files of Apache's broker, and no message is kept in memory. No files exist
before the first message. The checkpoint is written after the bytes that it covers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreFailed
from roquet.rules.delay.timer import PRECISION_MS, floor_ms, is_delete
from roquet.store.config import MIB
from roquet.store.filesystem.directory_lock import store_errors
from roquet.store.filesystem.files import Files, read_if_exists
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
from roquet.store.timer.recovery import DISCARDED, TimerOffsetLookup, discard, is_plausible, recover
from roquet.store.timer.wheel import SLOTS_PER_STEP, TimerWheel

log = logger(__name__)

MAPS_MAX: Final = 16
"""Files of the timer log mapped at once: each holds two million messages."""

CURSOR_NOT_BEGUN: Final = (0, 0)

STALE_MS: Final = 60_000
"""A checkpoint whose second is this far behind is written again, even if nothing was delivered."""


class TimerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """File sizes of the timer store, with RocketMQ's defaults."""

    wheel_slots: int = WHEEL_SLOTS
    log_file_size: int = 100 * MIB
    log_step: int = MIB
    """Bytes of the timer log for which blocks are allocated at a time."""


class TimerStore:
    """The waiting messages of one data directory."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        offset_of: TimerOffsetLookup,
        now_ms: int,
        config: TimerConfig | None = None,
    ) -> None:
        """Open and recover the files of the directory. Raises StoreError if they are unusable."""
        config = config or TimerConfig()
        self._files = files
        self._directory = directory
        self._path = directory / "config" / "timercheck"
        self._page: memoryview | None = None
        self._pool = MapPool(files, MAPS_MAX)
        self._pool.has_durable_names = False  # the process before may have been killed
        self._wheel = TimerWheel(self._pool, directory / "timerwheel", config.wheel_slots)
        self._log = TimerLog(
            self._pool, directory / "timerlog", config.log_file_size, config.log_step
        )
        self._unsynced: dict[MappedFile, None] = {}
        self._writing = Lock()
        self._discards = 0
        """How often wheel and timer log were discarded: saves from before come too late."""
        self._saved = self._read()
        self._failure: StoreFailed | None = None
        self.on_failure: Callable[[str], object] = lambda _: None
        """Called with the reason when the disk has lost bytes."""
        with store_errors(directory):
            self._load(offset_of, now_ms)

    def _load(self, offset_of: TimerOffsetLookup, now_ms: int) -> None:
        if not is_plausible(self._saved, now_ms):
            log.warning(
                "%s is damaged: waiting messages are read again from their topic", self._path
            )
            self._saved = TimerCheckpoint()
        saved = self._saved
        self._wheel.load(self._files.list(self._directory).get("timerwheel"))
        self._log.load(self._files.list(self._log.segments.directory))
        recovered = recover(self._wheel, self._log, saved, offset_of)
        self.offset = recovered.offset
        """Offset of the timer topic's next message."""
        # Apache's broker writes another master's offset, or none, into its checkpoint.
        is_own = saved.cursor is not None
        taken = min(saved.offset, saved.master_offset) if is_own else saved.offset
        self.replayed = (taken, saved.read_ms)
        """Messages in front of this offset, of seconds before this one, were delivered already."""
        self.untaken = taken if taken < self.offset else None
        """Offset of the first message that this broker has taken and the master it followed has
        not; None: there is none."""
        self.reached_ms = 0 if self.untaken is None else max(now_ms, saved.changed_ms)
        """The latest second that was reached before another master's was taken over."""
        earliest_ms = min(recovered.read_ms or now_ms, now_ms)
        self.read_ms = floor_ms(saved.read_ms or earliest_ms)
        """The second that is being delivered, or is next."""
        self.cursor = saved.cursor or CURSOR_NOT_BEGUN
        """Progress in that second: the delivery time (ms) and the unit reached."""
        # Units from before the crash must not come back after the next crash, among new ones.
        self._sync(self._pool.take_dirty())
        self.unsaved = False

    def _read(self) -> TimerCheckpoint:
        data = read_if_exists(self._files, self._path)
        return TimerCheckpoint() if data is None else unpack_checkpoint(data)

    # -- look --------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether anything ever waited here."""
        return self._wheel.exists

    @property
    def log_end(self) -> int:
        """The position of the next unit."""
        return self._log.end

    def slot(self, time_ms: int) -> TimerSlot | None:
        """The slot of a time's second; None if nothing waits then."""
        return self._wheel.slot(time_ms)

    def next_used_ms(self, begin_ms: int, end_ms: int) -> int:
        """The first second of [begin_ms, end_ms) in which something waits; else end_ms."""
        return self._wheel.next_used_ms(begin_ms, end_ms)

    def count(self, begin_ms: int, end_ms: int) -> int:
        """Messages that wait in the seconds of [begin_ms, end_ms); a sum that may be a little off.

        Takes about a millisecond for `SLOTS_PER_STEP` seconds in all of which something waits.
        """
        return self._wheel.count(begin_ms, end_ms)

    def seconds_from(self, begin_ms: int) -> Iterator[int | None]:
        """Each used second from a time on, in ms; None now and then, for a pause."""
        for number, (time_ms, _) in enumerate(self._wheel.used(), 1):
            if time_ms >= begin_ms:
                yield time_ms
            if number % SLOTS_PER_STEP == 0:
                yield None

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position of the timer log; None if it is gone."""
        return self._log.unit(position)

    def free_slot_ms(self, slot_ms: int) -> int | None:
        """A second in which a message for `slot_ms` may wait; None: earlier slots must empty first.

        A slot of the wheel is not reused while it may be needed for an earlier second. It may hold
        a later second if the clock was set back by weeks: then the next free slot is taken.
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
        """Whether a waiting message was added to its second more than `wait_ms` before it."""
        firsts = ((at, self.unit(s.first)) for at, s in self._wheel.used() if at >= self.read_ms)
        return any(first and at - first.write_ms > wait_ms for at, first in firsts)

    def first_waiting(self) -> TimerUnit | None:
        """The unit that was added first of those that wait; None if nothing waits."""
        firsts = [slot.first for at, slot in self._wheel.used() if at >= self.read_ms]
        return self.unit(min(firsts)) if firsts else None

    def waiting_before(self, position: int) -> int:
        """Messages that wait and lie in front of a commit log position."""
        firsts = [slot.first for at, slot in self._wheel.used() if at >= self.read_ms]
        units = (unit for _, unit in self._log.units(min(firsts))) if firsts else iter(())
        lost = takewhile(lambda unit: unit.position < position, units)
        return sum(unit.slot_ms >= self.read_ms and not is_delete(unit.magic) for unit in lost)

    @property
    def is_saved(self) -> bool:
        """Whether the checkpoint on the disk is up to date."""
        return self.checkpoint() == self._saved

    # -- write -------------------------------------------------------------------------------

    def add(self, unit: TimerUnit) -> int:
        """Add a unit to its slot; gives its position. Raises StoreFull."""
        self._wheel.prepare()
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
        """Note that the timer topic's messages in front of an offset are processed."""
        if offset != self.offset:
            self.offset = offset
            self.unsaved = True

    def note_delivered(self, due_ms: int, position: int) -> None:
        """Note that the present second is delivered up to that time and unit."""
        self.cursor = (due_ms, position)
        self.unsaved = True

    def advance_to(self, read_ms: int) -> None:
        """Note that everything before that second was delivered."""
        assert read_ms % PRECISION_MS == 0, "a second begins there"
        self.read_ms, self.cursor = read_ms, CURSOR_NOT_BEGUN
        if self.exists and read_ms - self._saved.read_ms >= STALE_MS:
            self.unsaved = True

    def rewind(self, read_ms: int) -> Iterator[None]:
        """Go back to an earlier second, in steps, because the clock was set back.

        Messages of the seconds since then were delivered, so these seconds are emptied. A loss of
        power in between finds the same state as before, or less of it.
        """
        assert self.is_saved, "seconds with unsaved deliveries are not emptied"
        yield from self._wheel.blank_between(read_ms, self.read_ms)
        self.advance_to(read_ms)
        self.unsaved = True

    def follow(self, offset: int, read_ms: int) -> None:
        """Take the progress of the master that this store replicates, which may be behind its own.

        The master has delivered the messages of the timer topic in front of `offset` whose second
        is before `read_ms`. The wheel still holds the seconds from there on. What this store has
        delivered since it took the same progress before does not count either: it may be lost.
        """
        has_moved = (self.read_ms, self.cursor) != (read_ms, CURSOR_NOT_BEGUN)
        if has_moved or (offset, read_ms) != self.replayed:
            self.replayed = (offset, read_ms)
            self.advance_to(read_ms)
            self.unsaved = self.exists

    def note_untaken(self, offset: int | None) -> None:
        """Note which messages in front of the own offset the master has not taken."""
        before, self.untaken = self._master_offset, offset
        if self._master_offset != before:
            self.unsaved = self.exists

    @property
    def _master_offset(self) -> int:
        return self.offset if self.untaken is None else min(self.untaken, self.offset)

    def discard_behind(self, end: int, now_ms: int) -> None:
        """Discard wheel and timer log if the timer topic is about to be cut behind what they have.

        All of the topic is read again, and what was delivered before the cut is left out. Durable
        when this returns: other messages will get the offsets that are cut. Raises StoreFailed, and
        StoreFull, after which it has to be called again before the cut.
        """
        if self.offset <= end:
            return
        log.warning("the timer topic is cut from %d to %d: it is read again", self.offset, end)
        known = self.replayed[0] if self.replayed[1] == self.read_ms else 0
        taken = min(max(self._master_offset, known), end)
        checkpoint = msgspec.structs.replace(
            self._saved,
            read_ms=self.read_ms,
            log_end=DISCARDED,
            offset=taken,
            master_offset=taken,
            cursor=CURSOR_NOT_BEGUN,
            changed_ms=now_ms,
            changes=self._saved.changes + 1,
        )
        with self._writing:
            self._discards += 1
            self.unsaved = True
            self._keep(checkpoint)
        self.offset = discard(self._wheel, self._log, 0).offset
        self.replayed, self.untaken, self.cursor = (taken, self.read_ms), None, CURSOR_NOT_BEGUN

    def clear_seconds(self, seconds: Sequence[int]) -> Iterator[None]:
        """Empty seconds whose messages were all written again, in steps."""
        assert self.is_saved, "seconds are emptied once the rewritten messages are durable"
        for number, time_ms in enumerate(seconds, 1):
            self._wheel.blank(time_ms)
            if number % SLOTS_PER_STEP == 0:
                yield
        self.unsaved = True

    # -- keep --------------------------------------------------------------------------------

    def checkpoint(self) -> TimerCheckpoint:
        """The present state as a checkpoint."""
        return msgspec.structs.replace(
            self._saved,
            read_ms=self.read_ms,
            log_end=self._log.end,
            offset=self.offset,
            master_offset=self._master_offset,
            cursor=self.cursor,
        )

    def save_task(self, now_ms: int) -> Callable[[], None] | None:
        """The work that makes the present state durable; None when nothing has changed.

        May run in another thread, after the commit log was made durable. A caller that does not run
        it sets `unsaved` again.
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
        dirty, discards = list(self._unsynced), self._discards

        def run() -> None:
            with self._writing:
                if self._discards == discards:
                    self._keep(checkpoint, dirty)

        return run

    def _keep(self, checkpoint: TimerCheckpoint, dirty: Sequence[MappedFile] = ()) -> None:
        """Make written files durable, then the checkpoint that covers them."""
        try:
            self._sync(dirty)
            self._write(checkpoint)
        except OSError as error:
            # The system may have dropped bytes: a second try would succeed and prove nothing.
            reason = f"{self._path} could not be made durable ({error})"
            self._failure = StoreFailed(f"{reason}: look at the disk, then restart")
            self.on_failure(reason)
            raise self._failure from error
        self._saved = checkpoint
        for file in dirty:
            self._unsynced.pop(file)

    def _sync(self, dirty: Sequence[MappedFile]) -> None:
        for file in dirty:
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                self._files.sync(file.path, file.mapped_view)
        new_files = [file for file in dirty if file.is_new]
        for directory in sorted({file.path.parent for file in new_files}, reverse=True):
            self._files.sync(directory)
        if new_files:
            self._files.sync(self._directory)
        for file in new_files:
            file.is_new = False
        self._log.release_pages()

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
        """Delete the oldest file if its records lie in front of a commit log position."""
        return self._log.drop_before(position)

    def close(self) -> None:
        """Unmap the files."""
        self._pool.drop_all()
        self._page = None
