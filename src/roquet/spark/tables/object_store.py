"""Object store: uploads, lists, opens and removes objects, by pyarrow's file systems.

Every Spark worker has pyarrow, so nothing more has to be installed there. Errors of the store
become one sentence that says what to check.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from roquet.model.errors import ConfigError, RoquetError
from roquet.spark.tables.object_location import (
    CREDENTIALS,
    ENDPOINT,
    REGION,
    ObjectLocation,
    is_object_url,
)

ATTEMPTS: Final = 5
"""Tries of one request, with growing pauses, while a store answers 500 or 503 or not at all."""

FORBIDDEN: Final = (
    *("ACCESS_DENIED", "AccessDenied", "INVALID_ACCESS_KEY_ID", "InvalidAccessKeyId"),
    *("SIGNATURE_DOES_NOT_MATCH", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"),
    *("EXPIRED_TOKEN", "INVALID_CLIENT_TOKEN_ID"),
)
MISSING: Final = ("NO_SUCH_BUCKET", "NoSuchBucket")
ELSEWHERE: Final = ("PermanentRedirect", "AuthorizationHeaderMalformed", "HTTP status 301", " 301 ")
UNREACHABLE: Final = (
    *("NETWORK_CONNECTION", "error sending request"),
    *("Connection refused", "dns error"),
)
UNTRUSTED: Final = ("invalid peer certificate", "UnknownIssuer", "SSL peer certificate")
"""Parts of error texts of pyarrow and of deltalake, which have no other sign of the cause."""


class StorageFailed(RoquetError):
    """An object store that refused, failed or did not answer; the text says what to check."""


class StoredObject(NamedTuple):
    """An object below a location."""

    path: str
    """Relative to the location."""
    size: int
    modified_ms: int
    """When it was uploaded, by the store's clock."""


class ObjectStore:
    """The objects below a location; paths are relative to it."""

    def __init__(self, location: ObjectLocation) -> None:
        self.location = location
        self._files = file_system(location.options)

    def check_bucket(self) -> None:
        """Raise ConfigError without the bucket, StorageFailed when it cannot be read."""
        with explained(self.location):
            info = self._files.get_file_info(self.location.bucket)
        if info.type == pafs.FileType.NotFound:
            raise ConfigError(missing_bucket_text(self.location))

    def create(self, path: str) -> Any:
        """A stream that uploads a file, which appears when the stream is closed.

        Errors are pyarrow's OSErrors, here and of the stream: Spark tries a task again after them.
        """
        return self._files.open_output_stream(self._key(path))

    def put(self, path: str, data: bytes) -> None:
        """Upload a small file, replacing an older one."""
        with explained(self.location), self._files.open_output_stream(self._key(path)) as stream:
            stream.write(data)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with explained(self.location):
            try:
                self._files.delete_file(self._key(path))
            except FileNotFoundError:
                return

    def files(self, directory: str = "", *, recursive: bool = True) -> list[StoredObject]:
        """The files of a directory, and of those below it; empty when there is none."""
        base = self._key(directory).rstrip("/")
        selector = pafs.FileSelector(base, recursive=recursive, allow_not_found=True)
        with explained(self.location):
            found = self._files.get_file_info(selector)
        root = len(self.location.key) + 1
        return [
            StoredObject(info.path[root:], info.size, info.mtime_ns // 1_000_000)
            for info in found
            if info.type == pafs.FileType.File
        ]

    def modified_ms(self, path: str) -> int | None:
        """When a file was uploaded, by the store's clock; None when it is not there."""
        with explained(self.location):
            info = self._files.get_file_info(self._key(path))
        return info.mtime_ns // 1_000_000 if info.type == pafs.FileType.File else None

    def names(self) -> set[str]:
        """The names directly below the location: of files and directories."""
        selector = pafs.FileSelector(self.location.key, recursive=False, allow_not_found=True)
        with explained(self.location):
            return {info.base_name for info in self._files.get_file_info(selector)}

    def _key(self, path: str) -> str:
        return f"{self.location.key}/{path}"


def file_system(options: Mapping[str, str]) -> Any:
    """The file system of an object store with these options, one for a process."""
    return s3_file_system(tuple(sorted(options.items())))


@lru_cache(maxsize=8)
def s3_file_system(options: tuple[tuple[str, str], ...]) -> Any:
    """A file system for sorted options; kept, since each has connections of its own."""
    known = dict(options)
    arguments: dict[str, Any] = {"retry_strategy": pafs.AwsStandardS3RetryStrategy(ATTEMPTS)}
    if ENDPOINT in known:
        endpoint = urlsplit(known[ENDPOINT])
        arguments |= {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc}
    if REGION in known:
        arguments["region"] = known[REGION]
    # Small files are one request then: nothing is opened before its first bytes are sent.
    return pafs.S3FileSystem(allow_delayed_open=True, **arguments)


def open_source(path: str | Path, storage: Mapping[str, str]) -> Any:
    """A data file as pyarrow reads it: the path itself, or an object opened for reading.

    Raises FileNotFoundError for an object that is not there.
    """
    if not is_object_url(str(path)):
        return path
    with explained(ObjectLocation(str(path), storage)):
        return file_system(storage).open_input_file(_key_of(path))


def dataset_source(path: str, storage: Mapping[str, str]) -> tuple[str, Any]:
    """A data file for pyarrow's datasets: its path, and its file system if it is an object."""
    if not is_object_url(path):
        return path, None
    return _key_of(path), file_system(storage)


def file_sizes(paths: Sequence[str], storage: Mapping[str, str]) -> list[int]:
    """The sizes of data files in bytes; FileNotFoundError for one that is not there."""
    if not paths or not is_object_url(paths[0]):
        return [Path(path).stat().st_size for path in paths]
    with explained(ObjectLocation(paths[0], storage)):
        found = file_system(storage).get_file_info([_key_of(path) for path in paths])
    for info, path in zip(found, paths, strict=True):
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(2, "no such object", path)
    return [info.size for info in found]


@contextmanager
def explained(location: ObjectLocation) -> Iterator[None]:
    """Turn an error of the store into ConfigError or StorageFailed with a sentence of its own."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise explanation(error, location) from error


def explanation(error: Exception, location: ObjectLocation) -> RoquetError:
    """The error to raise instead of one of pyarrow or deltalake. Pure."""
    text = str(error)
    if any(mark in text for mark in MISSING):
        return ConfigError(missing_bucket_text(location))
    if any(mark in text for mark in FORBIDDEN) or re.search(r"(?<![-/\w])403\b", text):
        return StorageFailed(
            f"{location.server} refuses access to {location}: check {', '.join(CREDENTIALS[:3])} "
            "of the driver and the workers, and what they may do in the bucket"
        )
    if any(mark in text for mark in ELSEWHERE):
        return StorageFailed(
            f"bucket {location.bucket} is in another region than "
            f"{location.options.get(REGION, 'us-east-1')}: set {REGION} to its own"
        )
    # curl's 35, 58, 60 and 77 are about TLS.
    if any(mark in text for mark in UNTRUSTED) or re.search(r"curlCode: (35|58|60|77)\b", text):
        return StorageFailed(
            f"{location.server} has no certificate that is trusted here, for {location}: check "
            f"{ENDPOINT} and the certificates of this machine"
        )
    if any(mark in text for mark in UNREACHABLE):
        return StorageFailed(
            f"{location.server} cannot be reached for {location}: check {ENDPOINT} and the network"
        )
    line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return StorageFailed(f"{location}: {line}")


def missing_bucket_text(location: ObjectLocation) -> str:
    """The sentence about a bucket that does not exist."""
    return (
        f"there is no bucket {location.bucket!r} at {location.server}: create it, or check the "
        f"name and {ENDPOINT}"
    )


def _key_of(path: str | Path) -> str:
    return str(path).partition("://")[2]
