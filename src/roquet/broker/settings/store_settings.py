"""Store settings: how the store lays out its files and what it keeps, by the broker's settings."""

from typing import Final

from roquet.broker.settings.config import BrokerConfig
from roquet.rules.retention import RetentionPolicy
from roquet.store.config import StoreConfig

ROCKSDB_SETTINGS: Final = {
    "storeType": "defaultrocksdb",
    "configManagerVersion": "v2",
    "rocksdbCQDoubleWriteEnable": "true",
    "popConsumerKVServiceEnable": "true",
    "popConsumerKVServiceInit": "true",
    "timerRocksDBEnable": "true",
    "transRocksDBEnable": "true",
}
"""Settings of Apache's broker that keep queues, tables, pops, timers or half messages in RocksDB,
with the value that does, in small letters."""


def store_config(config: BrokerConfig) -> StoreConfig:
    """How the store lays out its files."""
    return StoreConfig(
        log_file_size=config.log_file_size,
        queue_file_entries=config.queue_file_entries,
        index_slots=config.index_slots,
        index_entries=config.index_entries,
        delay_levels_ms=config.message_delay_levels,
        retention=retention_policy(config),
        rocksdb_settings=tuple(
            f"{key}={value}"
            for key, value in config.unused.items()
            if value.lower() == ROCKSDB_SETTINGS.get(key)
        ),
    )


def retention_policy(config: BrokerConfig) -> RetentionPolicy:
    """Which messages the store keeps."""
    return RetentionPolicy(
        reserved_ms=config.retention,
        delete_hour=config.delete_hour,
        expire_ratio=config.expire_ratio,
        force_ratio=config.force_ratio,
        refuse_ratio=config.refuse_ratio,
        free_min=config.free_min,
        force_unread=config.force_unread,
    )
