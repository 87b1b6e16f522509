"""Store settings: how the store lays out its files and what it keeps, by the broker's settings."""

from roquet.broker.settings.config import BrokerConfig
from roquet.rules.retention import RetentionPolicy
from roquet.store.config import StoreConfig


def store_config(config: BrokerConfig) -> StoreConfig:
    """How the store lays out its files."""
    return StoreConfig(
        log_file_size=config.log_file_size,
        queue_file_entries=config.queue_file_entries,
        index_slots=config.index_slots,
        index_entries=config.index_entries,
        delay_levels_ms=config.message_delay_levels,
        retention=retention_policy(config),
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
    )
