"""Object store: uploads, lists, opens and removes objects, by pyarrow's file systems.

Every Spark worker has pyarrow, so nothing more has to be installed there. Errors of the store
become one sentence that says what to check.
"""

import mimetypes
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from roquet.lake.objects.cloud_file_systems import azure_file_system, google_file_system
from roquet.lake.objects.object_location import (
    AZURE,
    ENDPOINT,
    GOOGLE,
    REGION,
    S3,
    ObjectLocation,
    is_object_url,
    key_of,
    provider_of,
)
from roquet.model.errors import ConfigError, RoquetError

ATTEMPTS: Final = 5
"""Tries of one request, with growing pauses, while a store answers 500 or 503 or not at all."""

SPOOL_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a file to be uploaded that wait in memory; more wait in a temporary file."""

READERS: Final = 8
"""Files that are read at the same time."""

REASON_MAX: Final = 300
"""Characters of an error's own text that are repeated."""

COPY_BYTES: Final = 1024 * 1024
"""Bytes that are handed to an upload at a time."""

EXPIRED: Final = ("ExpiredToken", "EXPIRED_TOKEN", "TokenRefreshRequired", "RequestExpired")
SKEWED: Final = (
    *("RequestTimeTooSkewed", "REQUEST_TIME_TOO_SKEWED", "Request date header too old"),
)
FORBIDDEN: Final = (
    *("ACCESS_DENIED", "AccessDenied", "INVALID_ACCESS_KEY_ID", "InvalidAccessKeyId"),
    *("SIGNATURE_DOES_NOT_MATCH", "SignatureDoesNotMatch", "InvalidToken"),
    *("INVALID_CLIENT_TOKEN_ID", "AuthenticationFailed", "AuthorizationFailure"),
    *("AuthorizationPermissionMismatch", "PERMISSION_DENIED", "UNAUTHENTICATED"),
    "AuthenticationRequired",
)
TOKENLESS: Final = (
    *("Could not create a OAuth2 access token", "Error performing token request"),
    *("Unable to open service account file", "Unable to decode service account file"),
)
MISSING: Final = (
    *("NO_SUCH_BUCKET", "NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"),
    "The specified bucket does not exist",
)
ELSEWHERE: Final = (
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "HTTP status 301",
    " 301 ",
    "incorrectly configured region",
)
UNREACHABLE: Final = (
    *("NETWORK_CONNECTION", "error sending request"),
    *("Connection refused", "dns error", "CURL error ["),
)
UNTRUSTED: Final = ("invalid peer certificate", "UnknownIssuer", "SSL peer certificate")
"""Parts of error texts of pyarrow and of deltalake, which have no other sign of the cause."""

GOOGLE_STATUS: Final = "google::cloud::Status("
"""In pyarrow's errors of Google's store, of which those of wrong credentials are no OSErrors."""


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
        self._files = file_system(location.url, location.options)

    def check_bucket(self) -> None:
        """Raise ConfigError without the bucket, StorageFailed when it cannot be read."""
        with explained(self.location):
            info = self._bucket_info()
        if info.type == pafs.FileType.NotFound:
            raise ConfigError(missing_bucket_text(self.location))

    def create(self, path: str) -> Any:
        """A stream that uploads a file, which appears when the stream is closed.

        Errors are pyarrow's OSErrors, here and of the stream, for the caller to explain.
        """
        return self._files.open_output_stream(self._key(path))

    def put(self, path: str, data: bytes) -> None:
        """Upload a small file, replacing an older one."""
        kind = {"Content-Type": mimetypes.guess_type(path)[0] or "application/octet-stream"}
        with (
            explained_upload(self.location),
            self._files.open_output_stream(self._key(path), metadata=kind) as stream,
        ):
            stream.write(data)

    @contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        """A stream for a file of any size, which is uploaded after a block without errors.

        The bytes wait on this machine: pyarrow can end an upload, but not give it up.
        """
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
            yield cast("BinaryIO", spool)
            spool.seek(0)
            with explained_upload(self.location):
                stream = self.create(path)
                try:
                    shutil.copyfileobj(spool, stream, COPY_BYTES)
                except BaseException:  # closing ends the upload, so the file goes afterwards
                    with suppress(OSError):
                        stream.close()
                    with suppress(OSError, RoquetError):
                        self.remove(path)
                    raise
                stream.close()

    def rows(
        self, paths: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of Parquet files; all columns by default."""
        names = list(columns or schema.names)
        if not paths:
            return schema.empty_table().select(names)
        wanted = pa.schema([schema.field(name) for name in names])

        def read(path: str) -> pa.Table:
            with self._files.open_input_file(self._key(path)) as file:
                return pq.read_table(file, columns=names).select(names).cast(wanted)

        with explained(self.location), ThreadPoolExecutor(READERS) as readers:
            return pa.concat_tables(readers.map(read, paths))

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with explained(self.location):
            try:
                self._files.delete_file(self._key(path))
            except FileNotFoundError:
                return

    def remove_directory(self, directory: str) -> None:
        """Remove all files below a path.

        FileNotFoundError when there is none; nothing happens then at Google.
        """
        with explained(self.location):
            if self.location.provider is GOOGLE:
                # There delete_dir asks for a mark of the directory, too, and nothing has made one.
                self._files.delete_dir_contents(self._key(directory), missing_dir_ok=True)
            else:
                self._files.delete_dir(self._key(directory))

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

    def list_directory(self, directory: str) -> list[str]:
        """The sorted paths of the files of one directory; empty when there is none."""
        return sorted(file.path for file in self.files(directory, recursive=False))

    def modified_ms(self, path: str) -> int | None:
        """When a file was uploaded, by the store's clock; None when it is not there."""
        with explained(self.location):
            info = self._files.get_file_info(self._key(path))
        return info.mtime_ns // 1_000_000 if info.type == pafs.FileType.File else None

    def now_ms(self, path: str) -> int:
        """The time by the store's clock: that of a file just uploaded under this path."""
        self.put(path, b"{}")
        now_ms = self.modified_ms(path)
        if now_ms is None:
            raise StorageFailed(f"{self.location}: an object just uploaded is gone; start again")
        return now_ms

    def address(self, path: str) -> str:
        """The URL of a file."""
        return self.location.file(path)

    def has_directory(self, path: str) -> bool:
        """Whether there are files below a path."""
        with explained(self.location):
            return bool(self._files.get_file_info(self._key(path)).type == pafs.FileType.Directory)

    def names(self) -> set[str]:
        """The names directly below the location: of files and directories."""
        if self.location.provider is GOOGLE:
            # A list of one level has no directories there: pyarrow leaves out common prefixes.
            return {file.path.partition("/")[0] for file in self.files()}
        selector = pafs.FileSelector(self.location.key, recursive=False, allow_not_found=True)
        with explained(self.location):
            return {info.base_name for info in self._files.get_file_info(selector)}

    def _bucket_info(self) -> pafs.FileInfo:
        try:
            return self._files.get_file_info(self.location.bucket)
        except OSError as error:
            if self.location.provider is not GOOGLE or not _is_any(FORBIDDEN, str(error)):
                raise
            # Google's roles for objects do not include that of asking for the bucket: without
            # access to objects, too, this list is refused.
            self._files.get_file_info(pafs.FileSelector(self.location.key, allow_not_found=True))
            return pafs.FileInfo(self.location.bucket, pafs.FileType.Directory)

    def _key(self, path: str) -> str:
        return f"{self.location.key}/{path}"


def file_system(url: str, options: Mapping[str, str]) -> Any:
    """The file system of the store of a URL with these options, one for a process."""
    provider, sorted_options = provider_of(url), tuple(sorted(options.items()))
    if provider is AZURE:
        return azure_file_system(sorted_options)
    make = google_file_system if provider is GOOGLE else s3_file_system
    return make(sorted_options)


def retry_strategy() -> Any:
    """The retries of each request to S3; pyiceberg makes them by this function's name."""
    return pafs.AwsStandardS3RetryStrategy(ATTEMPTS)


@lru_cache(maxsize=8)
def s3_file_system(options: tuple[tuple[str, str], ...]) -> Any:
    """A file system for sorted options; kept, since each has connections of its own."""
    known = dict(options)
    arguments: dict[str, Any] = {"retry_strategy": retry_strategy()}
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
    with explained_read(path, storage):
        return file_system(str(path), storage).open_input_file(key_of(str(path)))


def dataset_source(path: str, storage: Mapping[str, str]) -> tuple[str, Any]:
    """A data file for pyarrow's datasets: its path, and its file system if it is an object."""
    if not is_object_url(path):
        return path, None
    return key_of(path), file_system(path, storage)


def file_sizes(paths: Sequence[str], storage: Mapping[str, str]) -> list[int]:
    """The sizes of data files in bytes; FileNotFoundError for one that is not there."""
    if not paths or not is_object_url(paths[0]):
        return [Path(path).stat().st_size for path in paths]
    with explained(ObjectLocation(paths[0], storage)):
        files = file_system(paths[0], storage)
        found = files.get_file_info([key_of(path) for path in paths])
    for info, path in zip(found, paths, strict=True):
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(2, "no such object", path)
    return [info.size for info in found]


@contextmanager
def explained_read(path: str | Path, storage: Mapping[str, str]) -> Iterator[None]:
    """Turn an error while a data file is read into a sentence; those of a directory's disk pass."""
    if not is_object_url(str(path)):
        yield
    else:
        with explained(ObjectLocation(str(path), storage)):
            yield


@contextmanager
def explained(location: ObjectLocation) -> Iterator[None]:
    """Turn an error of the store into ConfigError or StorageFailed with a sentence of its own."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise explanation(error, location) from error
    except pa.ArrowException as error:
        if GOOGLE_STATUS not in str(error):  # about what is in a file
            raise
        raise explanation(error, location) from error


@contextmanager
def explained_upload(location: ObjectLocation) -> Iterator[None]:
    """Turn every error of an upload into a sentence: what is not found then is not the file."""
    try:
        with explained(location):
            yield
    except FileNotFoundError as error:
        raise explanation(error, location) from error


def explanation(error: Exception, location: ObjectLocation) -> RoquetError:
    """The error to raise instead of one of pyarrow or deltalake. Pure."""
    text = str(error)
    if _is_any(MISSING, text):
        return ConfigError(missing_bucket_text(location))
    for marks, pattern, sentence in _CAUSES:
        if _is_any(marks, text) or (pattern and re.search(pattern, text)):
            return StorageFailed(_filled(sentence, location))
    lines = [line.strip(" \N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}") for line in
             _COLOUR.sub("", text).splitlines()]  # fmt: skip
    whole = _PARAMETERS.sub(r"\1…", ": ".join(filter(None, lines)))
    reason = whole[:REASON_MAX] or type(error).__name__
    return StorageFailed(f"{location}: {reason}")


def missing_bucket_text(location: ObjectLocation) -> str:
    """The sentence about a bucket that does not exist."""
    return _filled(_NO_BUCKET, location).removesuffix(" and ")


def _is_any(marks: Sequence[str], text: str) -> bool:
    return any(mark in text for mark in marks)


def _filled(sentence: str, location: ObjectLocation) -> str:
    provider = location.provider
    # The option of the server that may be wrong; an emulator's only where it is set.
    name = provider.endpoint if location.endpoint or provider is S3 else ""
    return sentence.format(
        location=location,
        server=location.server,
        names=provider.credentials_text,
        word=provider.bucket_word,
        bucket=location.bucket,
        region=location.options.get(REGION, "us-east-1"),
        endpoint=f"{name} and " if name else "",
    )


_PARAMETERS: Final = re.compile(
    r"(\b(?:sig|[\w-]*(?:key|password|secret|signature|token))=)[^&;\s)]+", re.IGNORECASE
)
"""Values of a URL's parameters that are secret, as those of a SAS token: texts leave them out."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Escapes in the texts of deltalake."""

_NO_BUCKET: Final = (
    "there is no {word} {bucket!r} at {server}: create it, or check the name and {endpoint}"
)

_CAUSES: Final = (
    (
        EXPIRED,
        None,
        "the credentials for {location} have expired: renew {names} of the driver and the "
        "workers, and start again",
    ),
    (
        SKEWED,
        None,
        "{server} refuses requests for {location}, because a clock is wrong: set those of the "
        "driver and the workers by NTP, and start again",
    ),
    (
        TOKENLESS,
        None,
        "there is no access token for {location}: check {names} of the driver and the workers, "
        "whether they are valid, and the network",
    ),
    (
        FORBIDDEN,
        r"(?<![-./\w])40[13]\b(?!\.\d)",
        "{server} refuses access to {location}: check {names} of the driver and the workers, and "
        "what they may do in the {word}",
    ),
    (
        ELSEWHERE,
        None,
        f"bucket {{bucket}} is in another region than {{region}}: set {REGION} to its own",
    ),
    (
        # The answer to a HEAD has no body that would say why, and that of a GET is not looked at.
        (),
        r"(?m)HTTP status 400\) during \w+ operation: *(No response body|$)",
        "{server} refuses requests for {location} without a reason: check whether {names} have "
        f"expired, and {REGION}",
    ),
    (
        UNTRUSTED,
        # curl's 35, 58, 60 and 77 are about TLS; the brackets are Google's.
        r"(curlCode: |CURL error \[)(35|58|60|77)\b",
        "{server} has no certificate that is trusted here, for {location}: check {endpoint}the "
        "certificates of this machine",
    ),
    (UNREACHABLE, None, "{server} cannot be reached for {location}: check {endpoint}the network"),
)
"""Parts of an error's text, a pattern of it, and the sentence about it; the first one counts."""
