"""Logs of brokers as an answer to a sender leaves them, and whether they still have its message."""

from random import Random

from tests.store.conftest import PowerLossFiles, read_bodies

from roquet.store.config import StoreConfig
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store

FILE_SIZE = 16 * 1024
LAYOUT = {
    "log_file_size": FILE_SIZE,
    "queue_file_entries": 100,
    "index_slots": 64,
    "index_entries": 256,
}
STORE = StoreConfig(
    log_file_size=FILE_SIZE, queue_file_entries=100, index_slots=64, index_entries=256
)
NEVER_MS = 3_600_000
"""An interval of flushing that is not over in a test."""

SEEDS = range(8)
"""Losses of power: each keeps other sectors of what was not flushed."""

TOPIC = "orders"
BODY = b"kept"


def log_of(files: PowerLossFiles) -> PowerLossFiles:
    """The files of the log as they are now: queues are built from it."""
    log = PowerLossFiles()
    twin = files.copy()
    log.contents = {p: data for p, data in twin.contents.items() if "commitlog" in p.parts}
    log.blocks = {path: files.blocks.get(path, 0) for path in log.contents}
    log.durable = {path: data for path, data in files.durable.items() if path in log.contents}
    log.named = set(files.named)
    return log


def has_message(files: MemoryFiles) -> bool:
    """Whether a broker that starts with these files has the message."""
    roots = {path.parent.parent for path in files.contents if path.parent.name == "commitlog"}
    store = Store.open(next(iter(roots), None), STORE, files=files, now_ms=0)
    try:
        return TOPIC in store.topics() and read_bodies(store, TOPIC)[-1:] == [BODY]
    finally:
        store.close(0)


def survives_power_loss(files: PowerLossFiles) -> bool:
    """Whether these files have the message after any loss of power."""
    return all(has_message(files.after_power_loss(Random(seed))) for seed in SEEDS)
