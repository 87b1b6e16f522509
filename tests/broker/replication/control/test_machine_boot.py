"""Whether a machine was lost since the last run."""

from pathlib import Path
from typing import Any

import pytest
from tests.broker.replication.controlled_parts import ControlledParts

from roquet.broker.replication.control.machine_boot import (
    LACKING,
    UNKNOWN,
    BootNote,
    machine_boot_id,
)
from roquet.model.errors import CallRefused, StoreFull
from roquet.store.filesystem.memory_files import MemoryFiles

pytestmark = pytest.mark.virtual_time

DIRECTORY = Path("/data")
FILE = DIRECTORY / "bootId"

STRICT = {"flushDiskType": "SYNC_FLUSH", "replica_ack": "flushed"}


def crashed(content: str | None) -> MemoryFiles:
    """Files of a store that was not closed, and what they say of the machine's boot."""
    files = MemoryFiles()
    files.replace(DIRECTORY / "abort", b"17")
    if content is not None:
        files.replace(FILE, content.encode())
    return files


def begin(files: MemoryFiles, boot_id: str, **facts: bool) -> bool:
    return BootNote(files, DIRECTORY, boot_id).begin(**facts)


def test_a_new_directory_has_lost_nothing() -> None:
    files = MemoryFiles()
    assert begin(files, "a")
    assert files.read(FILE) == b"a"


def test_a_killed_process_has_lost_nothing() -> None:
    assert begin(crashed("a"), "a")
    assert begin(crashed("a flushed"), "a")


def test_a_store_that_was_closed_has_lost_nothing_whatever_became_of_the_machine() -> None:
    files = MemoryFiles()
    begin(files, "a")
    assert begin(files, "b")
    assert files.read(FILE) == b"b"


def test_a_machine_that_was_started_again_may_have_lost_the_tail() -> None:
    assert not begin(crashed("a"), "b")


def test_a_crash_that_nobody_can_judge_may_have_lost_the_tail() -> None:
    assert not begin(crashed(None), "b")
    assert not begin(crashed(UNKNOWN), UNKNOWN)


def test_the_boot_of_this_machine_does_not_change() -> None:
    assert machine_boot_id() == machine_boot_id()


def test_a_log_that_lacks_a_part_does_so_after_a_kill_and_after_a_stop() -> None:
    files = crashed("a")
    assert not begin(files, "b")
    assert not begin(files, "b"), "the process was killed meanwhile"
    files.remove(DIRECTORY / "abort")
    note = BootNote(files, DIRECTORY, "b")
    assert not note.begin(), "it was stopped in good order"
    note.note_flushed()
    assert files.read(FILE) == LACKING.encode()
    note.note_whole()
    assert begin(files, "b")


def test_whether_the_power_took_anything_is_judged_by_the_settings_of_the_run_before() -> None:
    assert begin(crashed("a flushed"), "b"), "whatever is acknowledged from now on"
    assert not begin(crashed("a"), "b", is_flushed=True)
    assert not begin(crashed(LACKING), "c", is_flushed=True), "it was acknowledged before"


@pytest.mark.parametrize(
    ("files", "is_flushed", "content"),
    [
        (MemoryFiles(), True, "a flushed"),
        (crashed("a flushed"), True, "a flushed"),
        (crashed("b flushed"), True, "a flushed"),
        (crashed("a flushed"), False, "a"),
        (crashed("a"), True, "a"),
    ],
    ids=["a new directory", "a kill", "a loss of power", "less is flushed now", "more is"],
)
def test_all_is_noted_to_be_on_the_disk_if_it_was_so_and_will_be(
    files: MemoryFiles, content: str, *, is_flushed: bool
) -> None:
    begin(files, "a", is_flushed=is_flushed)
    assert files.read(FILE) == content.encode()


def test_a_log_that_an_operator_trusts_is_whole_from_then_on() -> None:
    lacking = crashed("a")
    assert not begin(lacking, "b")
    assert begin(lacking, "b", is_trusted=True)
    assert begin(lacking, "b")


def test_a_directory_without_a_log_has_lost_one_if_its_broker_was_known_before() -> None:
    assert not begin(MemoryFiles(), "a", has_identity=True)
    files = MemoryFiles()
    begin(files, "a")
    assert begin(files, "a", has_identity=True), "it was started before, and there is no message"


def test_the_directory_of_apaches_broker_has_all_that_is_in_its_log() -> None:
    files = MemoryFiles()
    files.create(DIRECTORY / "commitlog" / "00000000000000000000", 4_096)
    assert begin(files, "a", has_identity=True)


def test_a_failed_disk_may_have_dropped_what_was_not_flushed() -> None:
    files = MemoryFiles()
    note = BootNote(files, DIRECTORY, "a")
    note.begin()
    note.note_failed()
    assert not note.is_whole
    assert not begin(files, "a"), "the same boot"
    flushed = BootNote(MemoryFiles(), DIRECTORY, "a")
    flushed.begin(is_flushed=True)
    flushed.note_failed()
    assert flushed.is_whole


class Scene:
    """A broker in its first run, and its note."""

    def __init__(self, **settings: Any) -> None:
        self.parts = ControlledParts(**settings)
        self.note = self.parts.note

    def set(self, **values: str) -> None:
        self.parts.settings.change(values, 0)


async def test_once_all_is_on_the_disk_a_stricter_setting_is_noted() -> None:
    scene = Scene()
    scene.parts.append()
    await scene.parts.log.flush.step()
    scene.parts.append()
    scene.set(**STRICT)
    assert not scene.note.is_flushed
    await scene.parts.log.flush.step()
    await scene.parts.log.flush.step()
    assert scene.note.is_flushed
    await scene.parts.log.flush.step()
    assert scene.note.is_flushed


async def test_a_weaker_setting_is_noted_before_it_is_in_force() -> None:
    scene = Scene()
    scene.set(**STRICT)
    await scene.parts.log.flush.step()
    scene.set(replica_ack="appended")
    assert not scene.note.is_flushed
    scene.set(flushDiskType="ASYNC_FLUSH")
    await scene.parts.log.flush.step()
    assert not scene.note.is_flushed
    assert scene.note.is_whole


async def test_a_weaker_setting_that_cannot_be_noted_is_refused() -> None:
    scene = Scene()
    scene.set(**STRICT)
    await scene.parts.log.flush.step()

    def full() -> None:
        raise StoreFull("no space left")

    scene.note.note_appended = full  # type: ignore[method-assign]
    with pytest.raises(CallRefused, match=r"bootId does not take that less is flushed.*no space"):
        scene.set(replica_ack="appended")
    assert scene.parts.settings.config.replica_ack.value == "flushed"


async def test_a_log_that_lacks_something_is_noted_as_flushed_only_once_it_is_whole() -> None:
    scene = Scene(is_log_whole=False)
    scene.set(**STRICT)
    await scene.parts.log.flush.step()
    assert not scene.note.is_flushed
    scene.note.note_whole()
    await scene.parts.log.flush.step()
    assert scene.note.is_flushed
