"""Output files: a name of its own for each, complete or not there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lake.conftest import DirectoryObjects, TableKind

from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files.output_files import OWN_FILE, data_path, make_durable, new_file, remove_file
from roquet.lake.files.parquet_writer import PartitionedWriter
from roquet.lake.objects.object_location import ObjectDirectory, ObjectLocation

DIRECTORY = ObjectDirectory(ObjectLocation("s3://lake/orders"), "attempt")
DAY = "2026-01-31"


def test_a_file_of_a_directory_lies_flat_in_it(tmp_path: Path) -> None:
    file = new_file(tmp_path, DAY)
    file.stream.write(b"rows")
    file.complete()
    make_durable(tmp_path)
    assert (tmp_path / file.name).read_bytes() == b"rows"
    remove_file(tmp_path, DAY, file.name)
    assert (tmp_path / file.name).exists(), "the directory's owner removes it"


def test_an_uploaded_file_lies_in_its_day(objects: DirectoryObjects) -> None:
    file = new_file(DIRECTORY, DAY)
    assert OWN_FILE.fullmatch(data_path(DAY, file.name))
    file.stream.write(b"rows")
    file.complete()
    make_durable(DIRECTORY)
    assert objects.stored() == {f"lake/orders/day={DAY}/{file.name}"}
    remove_file(DIRECTORY, DAY, file.name)
    remove_file(DIRECTORY, DAY, file.name)
    assert objects.stored() == set()


def test_a_partition_below_the_day_is_a_directory_there(objects: DirectoryObjects) -> None:
    within = "hour=5/key_bucket=__HIVE_DEFAULT_PARTITION__"
    file = new_file(DIRECTORY, DAY, within)
    assert OWN_FILE.fullmatch(data_path(DAY, file.name, within)), "it is found as an orphan, too"
    file.stream.write(b"rows")
    file.complete()
    assert objects.stored() == {f"lake/orders/day={DAY}/{within}/{file.name}"}
    remove_file(DIRECTORY, DAY, file.name, within)
    assert objects.stored() == set()


@pytest.mark.parametrize("is_error", [False, True])
def test_a_task_that_fails_takes_back_what_it_has_uploaded(
    objects: DirectoryObjects, kinds: "Callable[[str], TableKind]", is_error: bool
) -> None:
    kind = kinds("delta")
    writer = PartitionedWriter(DIRECTORY, schema_of(kind.wanted.columns))
    writer.write(kind.batch(range(12)))
    if not is_error:
        assert {file.rows for file in writer.close()} == {2, 10}
        assert len(objects.stored()) == 2
    writer.abort()
    assert objects.stored() == set()
