"""StoreConfig: sizes and limits of a data directory, at the genuine defaults."""

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
"""The genuine default delay levels, 1s to 2h."""


class StoreConfig(CheckedConfig, frozen=True, kw_only=True):
    """How a store lays out its files and how much it keeps open.

    A directory that already holds files of another size keeps its own size; a log line says so.
    """

    log_file_size: int = 1024 * MIB
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    log_step: int = 32 * MIB
    """Bytes of the log that get their blocks on the disk at a time."""
    queue_step: int = 128 * 1024
    """The same for a consume queue, of which there may be thousands."""
    index_step: int = 4 * MIB
    maps_max: int | None = None
    """Maps held at once; None is what the process may have (see Files.maps_max)."""
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    """When a rebuilt entry of a delayed message is due."""
    retention: RetentionPolicy = RetentionPolicy()
