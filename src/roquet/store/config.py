"""StoreConfig: sizes and limits of a data directory, with RocketMQ's defaults."""

from typing import Final

from roquet.model.config_check import CheckedConfig
from roquet.rules.retention import RetentionPolicy

MIB: Final = 1024 * 1024

DELAY_LEVELS_MS: Final = tuple(
    seconds * 1000
    for seconds in (
        1,
        5,
        10,
        30,
        60,
        120,
        180,
        240,
        300,
        360,
        420,
        480,
        540,
        600,
        1200,
        1800,
        3600,
        7200,
    )
)
"""RocketMQ's default delay levels, 1 s to 2 h."""


class StoreConfig(CheckedConfig, frozen=True, kw_only=True):
    """File sizes, allocation steps and limits of a store.

    A directory that already holds files of another size keeps its own size; a log line says so.
    """

    log_file_size: int = 1024 * MIB
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    log_step: int = 32 * MIB
    """Bytes of the log for which blocks are allocated at a time."""
    queue_step: int = 128 * 1024
    """Bytes allocated at a time for a consume queue, of which there may be thousands."""
    index_step: int = 4 * MIB
    maps_max: int | None = None
    """Maps held at once; None for as many as the process may have (see Files.maps_max)."""
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    """Used when entries of delayed messages are rebuilt: they hold the delivery time."""
    retention: RetentionPolicy = RetentionPolicy()
    rocksdb_settings: tuple[str, ...] = ()
    """Given settings of Apache's broker, `key=value`, that keep its tables in RocksDB: refused over
    its messages."""
