import msgspec

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.config_file import read
from roquet.broker.settings.store_settings import store_config


def test_the_store_is_laid_out_by_the_brokers_settings() -> None:
    config = BrokerConfig(
        log_file_size=1, queue_file_entries=2, index_slots=3, index_entries=4, retention=5,
        delete_hour=6, expire_ratio=0.1, force_ratio=0.2, refuse_ratio=0.3, free_min=7,
        force_unread=True,
    )  # fmt: skip
    store = store_config(config)
    assert (store.log_file_size, store.queue_file_entries) == (1, 2)
    assert (store.index_slots, store.index_entries) == (3, 4)
    assert msgspec.structs.asdict(store.retention) == {
        "reserved_ms": 5, "delete_hour": 6, "expire_ratio": 0.1, "force_ratio": 0.2,
        "refuse_ratio": 0.3, "free_min": 7, "force_unread": True,
    }  # fmt: skip


def test_the_store_is_told_which_settings_keep_tables_in_rocksdb() -> None:
    text = (
        "storeType=DefaultRocksDB\nconfigManagerVersion=v1\ntransRocksDBEnable=true\n"
        "rocksdbCQDoubleWriteEnable=false\nindexRocksDBEnable=true\n"
    )
    settings = store_config(read(text, "broker.conf", {})).rocksdb_settings
    assert settings == ("storeType=DefaultRocksDB", "transRocksDBEnable=true")
