"""Table place: where an Iceberg table lies, in a directory or in an object store.

The catalog gives each table its place. An archive takes one inside of its target alone, and makes a
new table only where no other files are.
"""

from pathlib import Path

from roquet.lake.columns.partition_scheme import place_of
from roquet.lake.files.disk import Disk
from roquet.lake.files.object_staging import ObjectStaging
from roquet.lake.files.staging import Staging
from roquet.lake.objects.object_location import ObjectLocation, TableLocation
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.table import StagingArea
from roquet.model.errors import ConfigError


def staging_area(root: TableLocation, home: str, disk: Disk) -> StagingArea:
    """The staging of a table at `home`, whose archive has the target `root`."""
    if isinstance(root, Path):
        directory = local_path(home)
        return Staging(directory, directory / "data", disk)
    place = object_home(root, home)
    return ObjectStaging(ObjectLocation(place.file("data"), place.options))


def object_home(root: ObjectLocation, home: str) -> ObjectLocation:
    """The place of a table that its catalog has at `home`, with the options of its target."""
    return ObjectLocation(home.replace("s3a://", "s3://", 1).rstrip("/"), root.options)


def relative_path(url: str) -> str:
    """The path of a data file relative to the table's files."""
    partition, name = place_of(url)
    return f"{partition.path}/{name}"


def check_place(root: TableLocation, home: str) -> None:
    """ConfigError when a table of a catalog lies elsewhere than in its target."""
    if isinstance(root, Path):
        local_path(home)
    elif not object_home(root, home).file("").startswith(root.file("")):
        raise ConfigError(
            f"the catalog has the table outside of {root}: give the place that the catalog gives "
            "its tables, or another name (--table)"
        )


def check_free(root: TableLocation, home: str) -> None:
    """ConfigError when a new table would share its place with files of another one."""
    if isinstance(root, Path):
        # Metadata alone is what a run leaves that was killed while it made the table.
        if any((local_path(home) / "data").rglob("*.parquet")):
            raise ConfigError(
                f"{local_path(home)} has data files, and the catalog knows no table there: it has "
                "lost the table, or another catalog has it. Register the table again, or give "
                "another name (--table) or another path"
            )
        return
    place = object_home(root, home)
    if ObjectStore(place).names():
        raise ConfigError(
            f"{place} is not empty, and the catalog knows no table there: another catalog may. "
            "Give another name (--table) or another path"
        )


def local_path(location: str) -> Path:
    """The directory of a table location; pyiceberg does not unquote file URLs, nor is it done here.

    Raises ConfigError for other schemes.
    """
    if location.startswith("file:/") and not location.startswith("file://"):
        return Path(location.removeprefix("file:"))  # as a Hive metastore writes it
    scheme, separator, path = location.partition("://")
    if separator and scheme != "file":
        raise ConfigError(f"{location} is no directory: the warehouse must be a local one")
    return Path(path if separator else location)
