"""Files of an object store count by the commit alone, and orphans are found by name and age."""

import re

import pytest
from tests.lake.conftest import DirectoryObjects

from roquet.lake.files.object_staging import COMMIT_MS_MAX, HOUR_MS, MARK_MS, ObjectStaging
from roquet.lake.files.output_files import new_file
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore, StorageFailed
from roquet.lake.queue_offsets import QueueOffsets
from roquet.lake.table import DataFile, TableCommit, TableState
from roquet.model.errors import RoquetError

ORDERS = ObjectLocation("s3://lake/orders")
DAY = "2026-01-31"


class Clock:
    """The machine's wall clock, and a time of its own for what lasts."""

    def __init__(self) -> None:
        self.elapsed_ms = 0

    def now_ms(self) -> int:
        from roquet.net.clock import SYSTEM_CLOCK

        return SYSTEM_CLOCK.now_ms()

    def monotonic_ms(self) -> int:
        return self.elapsed_ms

    async def sleep(self, ms: int) -> None:
        raise NotImplementedError


class AheadClock(Clock):
    """A wall clock that is a week ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 7 * 24 * HOUR_MS


def upload(staging: ObjectStaging, data: bytes = b"rows") -> str:
    """Upload a file as a task does; returns its path in the table."""
    file = new_file(staging.begin(), DAY)
    file.stream.write(data)
    file.complete()
    return f"day={DAY}/{file.name}"


def commit(attempt: str) -> TableCommit:
    after: QueueOffsets = {("orders", "broker-a", 0): 1}
    return TableState(0, {}).then(after, attempt, (), ())


def test_files_are_uploaded_where_the_table_has_them(objects: DirectoryObjects) -> None:
    staging = ObjectStaging(ORDERS)
    path = upload(staging)
    assert re.fullmatch(r"day=2026-01-31/roquet-[0-9a-f]{32}\.parquet", path)
    assert f"lake/orders/{path}" in objects.stored()
    file = DataFile(name="a.parquet", day=DAY, rows=1, size=4)
    assert staging.address(file) == f"s3://lake/orders/day={DAY}/a.parquet"


def test_a_file_that_is_given_up_is_removed(objects: DirectoryObjects) -> None:
    file = new_file(ObjectStaging(ORDERS).begin(), DAY)
    file.stream.write(b"half")
    file.discard()
    assert not any(key.endswith(".parquet") for key in objects.stored())


def test_a_run_that_ends_well_leaves_no_mark(objects: DirectoryObjects) -> None:
    staging = ObjectStaging(ORDERS)
    staging.close()
    attempt = staging.begin()
    [mark] = objects.stored()
    assert mark.startswith("lake/orders/_roquet/runs/")
    staging.publish(commit(attempt.name))
    staging.settle(1)
    staging.close()
    assert objects.stored() == set()


def test_a_run_with_an_attempt_that_failed_leaves_its_mark(objects: DirectoryObjects) -> None:
    staging = ObjectStaging(ORDERS)
    staging.begin()
    staging.publish(commit(staging.begin().name))
    staging.settle(1)
    staging.close()
    assert len(objects.stored()) == 1


def test_a_run_renews_its_mark_while_it_goes_on(objects: DirectoryObjects) -> None:
    clock = Clock()
    staging = ObjectStaging(ORDERS, clock)
    staging.begin()
    [mark] = objects.stored()
    for hours, is_renewed in ((0, False), (1, True)):
        clock.elapsed_ms += hours * MARK_MS
        objects.age(mark, 5)
        old = (objects.root / mark).stat().st_mtime
        staging.begin()
        assert ((objects.root / mark).stat().st_mtime > old) == is_renewed


def test_files_that_may_have_been_removed_are_not_committed(objects: DirectoryObjects) -> None:
    clock = Clock()
    staging = ObjectStaging(ORDERS, clock)
    attempt = staging.begin()
    clock.elapsed_ms = COMMIT_MS_MAX
    staging.publish(commit(attempt.name))
    clock.elapsed_ms += 1
    with pytest.raises(RoquetError, match="more than 12 hours"):
        staging.publish(commit(attempt.name))
    with pytest.raises(RoquetError, match="nothing was committed"):
        staging.publish(commit("another"))


def test_old_files_that_no_version_names_are_removed(objects: DirectoryObjects) -> None:
    staging = ObjectStaging(ORDERS)
    named, young, orphan = upload(staging), upload(staging), upload(staging)
    others = ["day=2026-01-31/theirs.parquet", f"_x/{orphan}", "_delta_log/0.json"]
    for path in others:
        ObjectStore(ORDERS).put(path, b"")
    for path in (named, orphan, *others):
        objects.age(f"lake/orders/{path}", 25)
    asked = 0

    def names() -> set[str]:
        nonlocal asked
        asked += 1
        return {named}

    assert staging.clean(names) == 1
    assert asked == 1
    left = {key.removeprefix("lake/orders/") for key in objects.stored()}
    assert left - {key for key in left if key.startswith("_roquet/")} == {named, young, *others}
    assert staging.clean(lambda: {named}) == 0


def test_a_file_of_a_commit_that_came_meanwhile_stays(objects: DirectoryObjects) -> None:
    """The names are asked for after the files were listed."""
    staging = ObjectStaging(ORDERS)
    path = upload(staging)
    objects.age(f"lake/orders/{path}", 25)
    committed = set[str]()

    def names() -> set[str]:
        committed.add(path)
        return committed

    assert staging.clean(names) == 0


def test_a_run_that_was_killed_long_ago_is_found_by_its_mark(objects: DirectoryObjects) -> None:
    ObjectStaging(ORDERS).begin()
    [mark] = objects.stored()
    later = ObjectStaging(ORDERS)
    for hours, is_old in ((36, False), (2, True)):
        objects.age(mark, hours)
        assert later.has_leftovers() == is_old, (
            "the mark is up to an hour older than the last batch"
        )
    assert later.clean(set) == 0
    assert objects.stored() == {"lake/orders/_roquet/cleaned", "lake/orders/_roquet/now"}


def test_a_table_is_cleaned_weekly_even_without_a_mark(objects: DirectoryObjects) -> None:
    """A task that Spark tried again leaves files in a run that ends well."""
    first = ObjectStaging(ORDERS)
    assert not first.has_leftovers()
    orphan = upload(first)
    first.settle(1)
    first.close()
    stamp = "lake/orders/_roquet/cleaned"
    assert objects.stored() == {f"lake/orders/{orphan}", stamp}
    for hours, is_due in ((7 * 24 - 1, False), (2, True)):
        objects.age(f"lake/orders/{orphan}", hours)
        objects.age(stamp, hours)
        assert ObjectStaging(ORDERS).has_leftovers() == is_due
    assert ObjectStaging(ORDERS).clean(set) == 1
    assert not ObjectStaging(ORDERS).has_leftovers()


def test_ages_are_by_the_clock_of_the_store(objects: DirectoryObjects) -> None:
    """The machine's clock is a week ahead."""
    staging = ObjectStaging(ORDERS, AheadClock())
    upload(staging)
    later = ObjectStaging(ORDERS, AheadClock())
    assert not later.has_leftovers()
    assert later.clean(set) == 0


def test_a_file_that_is_gone_is_not_committed(objects: DirectoryObjects) -> None:
    staging = ObjectStaging(ORDERS)
    attempt = staging.begin()
    file = DataFile(name="a.parquet", day=DAY, rows=1, size=4)
    wanted = TableState(0, {}).then({}, attempt.name, [file], ())
    with pytest.raises(RoquetError, match=r"a.parquet was removed meanwhile; nothing was"):
        staging.publish(wanted)
    ObjectStore(ORDERS).put(file.path, b"rows")
    staging.publish(wanted)


def test_a_mark_that_cannot_be_removed_is_no_failure(
    objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = ObjectStaging(ORDERS)
    staging.begin()
    staging.settle(1)

    def away(store: ObjectStore, path: str) -> None:
        raise StorageFailed("the store is away")

    monkeypatch.setattr(ObjectStore, "remove", away)
    staging.close()
    assert len(objects.stored()) == 1
