"""RocksDB directories: databases of Apache's broker in a data directory, which Roquet cannot read.

    storeType=defaultRocksDB               config/topics, subscriptionGroups, consumerOffsets;
                                           consumequeue in place of the queues' files
      useSeparateStorePathForRocksdbCQ     consumequeue_rocksdb in place of consumequeue
      useSingleRocksDBForAllConfigs        config/metadata in place of the three
    configManagerVersion=v2                config/rdb
    rocksdbCQDoubleWriteEnable             consumequeue beside the queues' files
    popConsumerKVServiceInit               kvStore
    every setting                          rocksdbstore: empty unless timers, half messages or
                                           keys are kept in it
    authenticationEnabled and the like     config/users, config/acls: these are not refused, since
                                           users and policies are taken over by `roquet acl import`

Seen with 5.5.0. It merges tables in JSON into a database once and never deletes them, so those
beside a database may be of any age.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from roquet.model.errors import StoreError
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import Files

MARK: Final = "CURRENT"
"""The file that names a database's manifest: every RocksDB directory has it, and no other one."""

ALWAYS_THERE: Final = "rocksdbstore"
"""Made by a broker of any settings; with data it has tables (`.sst`) or a log that is not empty."""

ACCESS: Final = frozenset({"config/users", "config/acls"})
"""Users and policies: no message and no progress depends on them."""

WAY_OUT: Final = (
    "Roquet reads plain files alone, and tables in JSON beside these may be stale. Start Apache's"
    " broker on the directory and stop its clients; mqadmin rocksDBConfigToJson -b ADDRESS has it"
    " write topics, groups and their progress to config/*.json (exportMetadataInRocksDB shows"
    " topics and groups alone; nothing exports config/rdb/: let its groups read to the end), and"
    " request code 200056 the open pops of kvStore/ to the log. Stop it, set storeType=default,"
    " and move these directories away: the queues are built from the log"
)


def check_has_no_rocksdb(files: Files, directory: Path) -> None:
    """Raise StoreError, which names them and says what to do, for databases with data in them."""
    if found := sorted(rocksdb_directories(files, directory)):
        names = ", ".join(f"{name}/" for name in found)
        raise StoreError(f"{directory} has tables in RocksDB ({names}): {WAY_OUT}")


def settings_error(directory: Path, settings: Sequence[str]) -> StoreError:
    """The error for settings that keep tables in RocksDB, over Apache's files without any."""
    return StoreError(
        f"{directory} has messages of Apache's broker, and the settings say that its tables are in"
        f" RocksDB ({', '.join(settings)}), but no such directory is there: restore the whole"
        " directory, or remove these settings if its tables are plain files"
    )


def rocksdb_directories(files: Files, directory: Path) -> Iterator[str]:
    """Databases with data, as paths below a data directory."""
    for prefix in ("", "config/"):
        for name, size in files.list(directory / prefix).items():
            path = directory / prefix / name
            if size is not None or prefix + name in ACCESS or not _is_database(files, path):
                continue
            if name != ALWAYS_THERE or _has_data(files, path):
                yield prefix + name


def _is_database(files: Files, path: Path) -> bool:
    try:
        return files.read(path / MARK).startswith(b"MANIFEST-")
    except (FileNotFoundError, IsADirectoryError):  # a topic may have any name
        return False
    except OSError as error:
        raise store_error(path / MARK, error) from error


def _has_data(files: Files, path: Path) -> bool:
    return any(size and name.endswith((".sst", ".log")) for name, size in files.list(path).items())
