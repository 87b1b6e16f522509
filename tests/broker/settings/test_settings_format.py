from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import FIXED, SETTINGS, apache_keys
from roquet.broker.settings.settings_format import all_settings, apache_text, own_text
from roquet.net.tls import ClientAuth, KeyPassword
from roquet.rules.replication.acknowledgement import BrokerRole, ReplicaAck
from roquet.wire.signing import Credentials

ODD: dict[str, Any] = {
    "name_servers": ("10.0.0.1:9876", "10.0.0.2:9876"),
    "sync_flush": True,
    "message_delay_levels": (1_000, 90_000, 3_600_000, 172_800_000),
    "retention": 48 * 3_600_000,
    "delete_hour": 5,
    "expire_ratio": 0.57,
    "store_dir": Path("/data/store"),
    "free_min": 1024,
    "default_pop_share_queues": 3,
    "register_interval": 20_000,
    "broker_role": BrokerRole.SLAVE,
    "broker_id": 2,
    "ha_master": "10.0.0.1:10912",
    "replica_ack": ReplicaAck.FLUSHED,
    "tls_client_auth": ClientAuth.OPTIONAL,
    "proxy_protocol_from": ("10.0.0.0/8", "127.0.0.1"),
}


MACHINES = {
    "namesrvAddr", "storePathRootDir", "storePathCommitLog", "brokerIP1", "brokerIP2",
    "rocketmqHome", "haMasterAddress", "tls.server.keyPath", "mapedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue", "readOnlyCommitLogStorePaths", "storePathDLedgerCommitLog",
    "storePathEpochFile", "storePathBrokerIdentity", "storePathConsumeQueue", "storePathIndex",
    "storeCheckpoint", "abortFile", "dLegerGroup", "dLegerPeers", "dLegerSelfId", "enableAcl",
    "preferredLeaderId", "tls.server.trustCertPath", "tls.server.mode", "tls.client.keyPath",
    "tls.enable", "tls.client.certPath", "tls.client.trustCertPath", "tls.config.file",
    "enableRetryTopicV2",
}  # fmt: skip
"""Keys that nobody has set here, old spellings, and paths of a genuine broker's parts."""


@pytest.mark.parametrize("changes", [{}, ODD], ids=["defaults", "odd ones"])
def test_every_setting_is_read_again_as_it_was_written(changes: dict[str, Any]) -> None:
    config = msgspec.structs.replace(BrokerConfig(), **changes)
    for name, setting in SETTINGS.items():
        value = getattr(config, name, None)
        if value is None or value == ():
            continue
        assert setting.parse(own_text(name, value), name) == value, name
        for key in setting.apache_keys:
            assert setting.parse_apache(apache_text(name, value), key) == value, key


def test_a_description_lists_each_setting_once_by_apaches_name() -> None:
    config = BrokerConfig(free_min=5, source=Path("/etc/broker.conf"), tls_cert=Path("/c.pem"))
    pairs = list(all_settings(config))
    found = dict(pairs)
    assert len(pairs) == len(found)
    assert found.keys() | MACHINES >= apache_keys()
    assert (found["forwardTimeout"], found["haListenPort"]) == ("3000", "0")
    again = dict(all_settings(msgspec.structs.replace(config, unused={"forwardTimeout": "1"})))
    assert again == found | {"forwardTimeout": "1"}
    assert found.items() >= {k: f.value for k, f in FIXED.items() if f.value}.items()
    assert found["brokerConfigPath"] == "/etc/broker.conf"
    assert (found["fileReservedTime"], found["deleteWhen"], found["free_min"]) == ("72", "04", "5")
    assert (found["flushDiskType"], found["autoCreateTopicEnable"]) == ("ASYNC_FLUSH", "true")
    assert found["messageDelayLevel"].startswith("1s 5s 10s 30s 1m 2m")
    assert "tls_ca" not in found


def test_secrets_are_described_as_set_or_not_and_never_shown() -> None:
    given = Credentials(access_key="root", secret_key="hush-hush")
    config = BrokerConfig(initial_user=given, tls_key_password=KeyPassword("hush-hush"))
    assert "hush" not in repr(config)
    found = dict(all_settings(config))
    assert found["tls.server.keyPassword"] == "******"
    assert found["tls.client.keyPassword"] == ""
    assert found["initAuthenticationUser"] == "******"
    assert found["innerClientAuthenticationCredentials"] == ""
    assert own_text("initial_user", given) == "******"
