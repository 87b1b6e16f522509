"""Whether a machine was lost since the last run."""

from pathlib import Path

from roquet.broker.replication.control.machine_boot import (
    UNKNOWN,
    machine_boot_id,
    note_boot,
    note_whole,
)
from roquet.store.filesystem.memory_files import MemoryFiles

DIRECTORY = Path("/data")


def crashed(boot_id: str | None) -> MemoryFiles:
    """Files of a store that was not closed, in a boot of the machine."""
    files = MemoryFiles()
    files.replace(DIRECTORY / "abort", b"17")
    if boot_id is not None:
        files.replace(DIRECTORY / "bootId", boot_id.encode())
    return files


def test_a_new_directory_has_lost_nothing() -> None:
    files = MemoryFiles()
    assert note_boot(files, DIRECTORY, "a")
    assert files.read(DIRECTORY / "bootId") == b"a"


def test_a_killed_process_has_lost_nothing() -> None:
    assert note_boot(crashed("a"), DIRECTORY, "a")


def test_a_store_that_was_closed_has_lost_nothing_whatever_became_of_the_machine() -> None:
    files = MemoryFiles()
    note_boot(files, DIRECTORY, "a")
    assert note_boot(files, DIRECTORY, "b")
    assert files.read(DIRECTORY / "bootId") == b"b"


def test_a_machine_that_was_started_again_may_have_lost_the_tail() -> None:
    assert not note_boot(crashed("a"), DIRECTORY, "b")


def test_a_crash_that_nobody_can_judge_may_have_lost_the_tail() -> None:
    assert not note_boot(crashed(None), DIRECTORY, "b")
    assert not note_boot(crashed(UNKNOWN), DIRECTORY, UNKNOWN)


def test_the_boot_of_this_machine_does_not_change() -> None:
    assert machine_boot_id() == machine_boot_id()


def test_a_log_that_lacks_a_part_does_so_after_a_kill_and_after_a_stop() -> None:
    files = crashed("a")
    assert not note_boot(files, DIRECTORY, "b")
    assert not note_boot(files, DIRECTORY, "b"), "the process was killed meanwhile"
    files.remove(DIRECTORY / "abort")
    assert not note_boot(files, DIRECTORY, "b"), "it was stopped in good order"
    note_whole(files, DIRECTORY, "b")
    assert note_boot(files, DIRECTORY, "b")


def test_where_all_that_is_acknowledged_is_on_the_disk_nothing_of_it_is_lost() -> None:
    assert note_boot(crashed("a"), DIRECTORY, "b", is_flushed=True)
    lacking = crashed("a")
    assert not note_boot(lacking, DIRECTORY, "b")
    assert not note_boot(lacking, DIRECTORY, "c", is_flushed=True), "it was acknowledged before"


def test_a_log_that_an_operator_trusts_is_whole_from_then_on() -> None:
    lacking = crashed("a")
    assert not note_boot(lacking, DIRECTORY, "b")
    assert note_boot(lacking, DIRECTORY, "b", is_trusted=True)
    assert note_boot(lacking, DIRECTORY, "b")
