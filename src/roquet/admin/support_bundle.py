"""Support bundle: what explains a server's trouble to others, in one archive, without secrets.

    versions.txt                  of Roquet, Python and the system
    environment.txt, FILE.conf    settings, secrets hidden
    tables/…, store.json          tables of a data directory, sizes of its files, and its check
    logs/…                        the last part of each log
    metrics-1.prom, -2.prom       the page of metrics twice, a few seconds apart
    readiness.txt, stacks.txt     of the running server
    faults.txt                    what could not be had, and why

Message bodies are in none of them. Users and policies are left out.
"""

import io
import os
import platform
import stat
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from roquet import __version__
from roquet.admin.directory_check import TABLES
from roquet.admin.hidden_secrets import hide_secrets, shown_settings, shown_table
from roquet.model.errors import FieldError, RemoteProtocolError, RoquetError
from roquet.net.clock import Clock
from roquet.observe.exporter import PATH
from roquet.observe.health import READY_PATH, STACKS_PATH
from roquet.observe.page_client import read_response
from roquet.store.check import check
from roquet.store.filesystem.private_files import open_regular, read_unlinked
from roquet.wire.records.speedups import DESCRIPTION

LOG_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of each log, its last ones."""

TABLE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of a table; of a larger one only the size is told."""

CHECKED_SIZE_MAX: Final = 1024**3
"""Bytes of a log that is checked without being asked for: a few seconds."""

PAGE_TIMEOUT_MS: Final = 10_000

PAGES_APART_MS: Final = 3_000
"""Ms between the two pages of metrics: their difference shows rates."""

TABLE_NAMES: Final = frozenset(
    name + suffix
    for name in (*TABLES, "consumerFilter.json", "lmqConsumerOffset.json", "topicQueueMapping.json")
    for suffix in ("", ".bak")
)
"""Tables of ours and of Apache's broker. Any other file beside them may be a copy of passwords."""

LINKED_FOLDERS: Final = ("commitlog", "consumequeue", "index")
"""Folders of a data directory that may lie on another disk, behind a link."""


class BundleSources(msgspec.Struct, frozen=True, kw_only=True):
    """Files and addresses to look at, all on this machine; none of them has to be there."""

    data: Sequence[Path] = ()
    """Data directories of brokers."""
    configs: Sequence[Path] = ()
    """Settings files."""
    logs: Sequence[Path] = ()
    """Log files."""
    metrics: Sequence[str] = ()
    """HOST:PORT of pages of metrics."""
    environ: Mapping[str, str] = {}
    checks_all: bool = False
    """Whether large logs are checked, too."""


async def collect(sources: BundleSources, clock: Clock) -> dict[str, bytes]:
    """Collect the files of a bundle by name. What fails is in faults.txt; nothing is raised."""
    bundle = _Bundle()
    bundle.files["versions.txt"] = _versions().encode()
    bundle.files["environment.txt"] = _bytes(hide_secrets(sorted(_environment(sources.environ))))
    for path in sources.configs:
        with bundle.noting_faults(path):
            bundle.files[bundle.free_name(path.name)] = _bytes(shown_settings(path))
    for path in sources.logs:
        with bundle.noting_faults(path):
            bundle.files[bundle.free_name(f"logs/{path.name}")] = _last_part(path)
    for number, address in enumerate(sources.metrics):
        await bundle.add_pages(address, f"{number}-" if number else "", clock)
    for directory in sources.data:
        place = bundle.free_name(directory.name or "data")
        with bundle.noting_faults(directory):
            for name, data in _data_files(directory, sources.checks_all):
                bundle.files[f"{place}/{name}"] = data
    bundle.files["faults.txt"] = _bytes("".join(f"{fault}\n" for fault in bundle.faults))
    return bundle.files


def _bytes(text: str) -> bytes:
    """Text as UTF-8; environments and remarks may hold bytes and surrogates that it has not."""
    return text.encode("utf-8", "backslashreplace")


class _Bundle:
    """A bundle that is being collected."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []

    def free_name(self, name: str) -> str:
        """The name itself, or with a number if another source has it."""
        taken, number, found = {*self.files, *(n.partition("/")[0] for n in self.files)}, 1, name
        while found in taken:
            number += 1
            found = f"{name}-{number}"
        return found

    @contextmanager
    def noting_faults(self, source: object) -> Iterator[None]:
        """Note an expected failure of a block, and go on behind it."""
        try:
            yield
        except (RoquetError, OSError, ValueError) as error:
            self.faults.append(f"{source}: {error}")

    async def add_pages(self, address: str, prefix: str, clock: Clock) -> None:
        """Add the pages of a running server; metrics twice."""
        pages = {"metrics-1.prom": PATH, "readiness.txt": READY_PATH, "stacks.txt": STACKS_PATH}
        for name, path in pages.items():
            with self.noting_faults(address):
                self.files[prefix + name] = await _page(address, path)
        with self.noting_faults(address):
            if prefix + "metrics-1.prom" in self.files:
                await clock.sleep(PAGES_APART_MS)
                self.files[prefix + "metrics-2.prom"] = await _page(address, PATH)


def pack(bundle: Mapping[str, bytes], made_s: int) -> bytes:
    """Pack the files as a gzipped tar, all below one directory."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in sorted(bundle.items()):
            entry = tarfile.TarInfo(f"roquet-support/{name}")
            entry.size, entry.mtime, entry.mode = len(data), made_s, 0o600
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _versions() -> str:
    return f"Roquet {__version__} ({DESCRIPTION})\nPython {sys.version}\n{platform.platform()}\n"


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith(("ROQUET_", "NAMESRV_")):
            yield name, value


def _last_part(path: Path) -> bytes:
    with open(path, "rb", opener=open_regular) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - LOG_SIZE_MAX, 0))
        return file.read(LOG_SIZE_MAX)


async def _page(address: str, path: str) -> bytes:
    """The text of a page; one of reasons is unavailable by its status."""
    response = await read_response(address, path, timeout_ms=PAGE_TIMEOUT_MS)
    if response.status not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
        raise RemoteProtocolError(f"{path}: status {response.status}")
    return response.text.encode()


def _data_files(directory: Path, checks_all: bool) -> Iterator[tuple[str, bytes]]:
    sizes = _sizes(directory)
    yield "sizes.json", msgspec.json.format(msgspec.json.encode(sizes))
    for name, size in sizes.items():
        folder, _, table = name.rpartition("/")
        if folder == "config" and table in TABLE_NAMES and size <= TABLE_SIZE_MAX:
            with suppress(FileNotFoundError):
                yield f"tables/{table}", _table(directory / name)
    written = sum(_written(directory / name) for name in sizes if name.startswith("commitlog/"))
    if written > CHECKED_SIZE_MAX and not checks_all:
        yield "check.json", f"not checked: {written} bytes of log; ask for it by --check\n".encode()
        return
    report = check(directory)
    yield (
        "check.json",
        msgspec.json.format(
            msgspec.json.encode({"verdict": report.verdict, **msgspec.to_builtins(report)})
        ),
    )


def _sizes(directory: Path) -> dict[str, int]:
    """The sizes of all files by path; links are not followed."""
    linked = [directory / n for n in LINKED_FOLDERS if (directory / n).is_symlink()]
    sizes: dict[str, int] = {}
    for root in (directory, *linked):
        for folder, _, names in os.walk(root):
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):  # its broker runs, and deletes or replaces files
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        sizes[path.relative_to(directory).as_posix()] = found.st_size
    return dict(sorted(sizes.items()))


def _table(path: Path) -> bytes:
    try:
        return shown_table(read_unlinked(path))
    except FieldError:  # its text repeats a part of the content
        return b"left out: it is no JSON\n"


def _written(path: Path) -> int:
    """Bytes of a file that take space; its size where that is not told, 0 when it is gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return getattr(found, "st_blocks", found.st_size // 512) * 512
