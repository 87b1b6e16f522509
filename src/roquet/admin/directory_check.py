"""Directory check: examines a whole data directory, its messages and its tables."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.broker.access.access_file import FILE_NAME as ACCESS_NAME
from roquet.broker.access.access_file import AccessFile
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.request_modes import RequestModes
from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.broker.tables.timer_metrics import TimerMetrics
from roquet.broker.tables.topics import Topics
from roquet.model.errors import StoreError
from roquet.store.check import StoreReport, check
from roquet.store.config import StoreConfig
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.replication.epoch_file import FILE_NAME as EPOCH_NAME
from roquet.store.replication.epoch_file import EpochFile
from roquet.store.replication.identity_file import FILE_NAME as IDENTITY_NAME
from roquet.store.replication.identity_file import IdentityFile

TABLES: Final[Mapping[str, type[SavedTable[Any]]]] = MappingProxyType(
    {
        "topics.json": Topics,
        "subscriptionGroup.json": Groups,
        "consumerOffset.json": ConsumerOffsets,
        "messageRequestMode.json": RequestModes,
        "consumerOrderInfo.json": OrderedPops,
        "delayOffset.json": DelayOffsets,
        "timermetrics": TimerMetrics,
    }
)
"""The tables below config/, by file name."""


class TableFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Files that cannot be used: the broker does not start with the first, and mends the others."""

    problems: tuple[str, ...]
    pending: tuple[str, ...]
    """Their `.bak` is used."""


def check_tables(files: Files, directory: Path) -> TableFaults:
    """Read every table of a data directory as its broker would; nothing is changed."""
    problems, pending = list[str](), list[str]()
    for name, table in TABLES.items():
        fault = TableFile(files, directory / "config" / name).fault(table.kind)
        if fault is not None:
            text, has_backup = fault
            (pending if has_backup else problems).append(text)
    others: tuple[Callable[[], object], ...] = (
        AccessFile(files, directory / "config" / ACCESS_NAME).read,
        EpochFile(directory / EPOCH_NAME, files).load,
        IdentityFile(directory / IDENTITY_NAME, files).load,
    )
    for read in others:
        try:
            read()
        except StoreError as error:
            problems.append(str(error))
    return TableFaults(problems=tuple(problems), pending=tuple(pending))


def check_directory(directory: Path, config: StoreConfig | None = None) -> StoreReport:
    """Examine a directory that no broker uses. Raises StoreError if it is no data directory."""
    report, tables = check(directory, config), check_tables(RealFiles(), directory)
    return msgspec.structs.replace(
        report, problems=report.problems + tables.problems, pending=report.pending + tables.pending
    )
