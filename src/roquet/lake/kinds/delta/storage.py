"""Delta storage: how deltalake reaches a table's log, in a directory or in an object store."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from roquet.lake.objects.object_location import ENDPOINT, GOOGLE, S3, ObjectLocation, TableLocation
from roquet.lake.objects.object_store import ObjectStore, explanation
from roquet.lake.table import TableConflict, TableDamaged
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log

SAFE_COMMITS: Final[Mapping[str, str]] = MappingProxyType(
    {"AWS_CONDITIONAL_PUT": "etag", "AWS_S3_ALLOW_UNSAFE_RENAME": "false"}
)
"""Options that win over the environment's: without conditional requests one archive would replace
the log entry of another."""

ALLOCATOR: Final = "_RJEM_MALLOC_CONF"
"""The variable with the options of jemalloc, deltalake's allocator; read as deltalake is loaded."""

ALLOCATOR_OPTIONS: Final = "narenas:1,dirty_decay_ms:100,muzzy_decay_ms:0"
"""One pool of memory, which gives back what was free for 100 ms. By default threads have up to four
for each core, and after some commits each holds as much as one took for the files of a table."""

LOG: Final = "_delta_log"


def check_installed() -> None:
    """Load deltalake; raise ConfigError, with the command to install it, when it is missing."""
    try:
        with _allocator_options():
            import deltalake  # noqa: F401
    except ImportError as error:
        raise ConfigError("Delta tables need deltalake: pip install 'roquet[delta]'") from error


@contextmanager
def _allocator_options() -> Iterator[None]:
    """Set the options of the allocator of a library that is loaded meanwhile; a user's win."""
    given = os.environ.get(ALLOCATOR)
    os.environ[ALLOCATOR] = ",".join(filter(None, (ALLOCATOR_OPTIONS, given)))
    try:
        yield
    finally:
        if given is None:
            del os.environ[ALLOCATOR]
        else:
            os.environ[ALLOCATOR] = given


def log_options(location: TableLocation) -> dict[str, str] | None:
    """Storage options for deltalake, which finds credentials in the environment itself."""
    if isinstance(location, Path):
        return None
    # Conditional requests are the only ones that it makes in other stores than S3.
    if location.provider is GOOGLE:
        return emulator_options(location.endpoint) if location.endpoint else {}
    if location.provider is not S3:
        return dict(location.options)
    options = {**location.options, **SAFE_COMMITS}
    if ENDPOINT in options:
        # deltalake adds all names of the environment, and takes any one of those that are set.
        options |= dict.fromkeys(S3.options[ENDPOINT], options[ENDPOINT])
    return options


def emulator_options(url: str) -> dict[str, str]:
    """Options to reach an emulator of Google's store, without credentials.

    A service account without OAuth is what deltalake has for that: told to skip signatures, it asks
    for a token nevertheless before each PUT (1.6.6). The URL is there twice, so that none of the
    environment wins.
    """
    account = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return {
        "google_base_url": url,
        "google_service_account_key": json.dumps(
            {"gcs_base_url": url, "disable_oauth": True, **account}
        ),
        "allow_http": "true",
    }


def check_free(location: ObjectLocation) -> None:
    """Raise ConfigError when the bucket is missing or the prefix holds something else.

    `_roquet` alone is what a run leaves that was killed before it had created the table.
    """
    store = ObjectStore(location)
    store.check_bucket()
    if not store.has_directory(LOG) and store.names() - {"_roquet"}:
        raise ConfigError(
            f"{location} is not empty and no archive of kind delta: give another path"
        )


def check_plain_files(log: "Log", where: TableLocation) -> None:
    """Raise ConfigError unless the rows of a table are those of its files, under their own names.

    Archives are read and merged file by file, as any reader of Parquet would: a deletion vector
    says which rows of a file do not count, and column mapping gives columns other names there.
    """
    mode = log.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode.lower() != "none":
        raise ConfigError(
            f"{where} maps its columns to other names in its files (delta.columnMapping.mode is "
            f"{mode}): copy it to a table without column mapping"
        )
    if "deletionVectors" not in (log.protocol().reader_features or ()):
        return
    with explained_log(where):  # a vector may be a file of its own
        has_vectors = any(batch.num_rows for batch in log.deletion_vectors())
    if has_vectors:
        raise ConfigError(
            f"{where} has deletion vectors, so its files hold rows that were deleted: write them "
            "anew (REORG TABLE … APPLY (PURGE)), and start again"
        )


def check_stamps(log: "Log", where: TableLocation, now_ms: int) -> None:
    """Raise TableConflict while the log has an entry from the future: some clock is wrong.

    deltalake tells which files were removed before now. One that was removed later by its stamp
    would seem to be of no version, though it may have been in the newest a moment ago.
    """
    with explained_log(where):
        newest_ms = max((entry.get("timestamp", 0) for entry in log.history()), default=0)
    if newest_ms > now_ms:
        raise TableConflict(
            f"the log of {where} has an entry that is {newest_ms - now_ms} ms ahead of this "
            "machine's clock, so nothing says which files older versions have, and none of those "
            "was removed: set the clocks, and start again after that time"
        )


@contextmanager
def opened_log(root: TableLocation) -> "Iterator[Log]":
    """The log of a table that is read, with errors as sentences; ConfigError without a table."""
    check_installed()
    from deltalake import DeltaTable as Log

    if not isinstance(root, Path):
        store = ObjectStore(root)
        store.check_bucket()
        if not store.has_directory(LOG):
            raise ConfigError(f"{root} is no delta table: it has no {LOG}")
    with explained_log(root):
        log = Log(str(root), storage_options=log_options(root))
        check_plain_files(log, root)
        yield log


@contextmanager
def explained_log(location: TableLocation) -> Iterator[None]:
    """Give errors of a log, and of an object store, a sentence of their own.

    A refused commit passes, and so do errors of a directory's file system.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError:
        raise
    except (OSError, DeltaError) as error:
        if not isinstance(location, Path):
            raise explanation(error, location) from error
        if isinstance(error, OSError):
            raise
        raise TableDamaged(
            f"the Delta log of {location} cannot be read, perhaps because the table was removed or "
            f"made anew meanwhile: {error}"
        ) from error
