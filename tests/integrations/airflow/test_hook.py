"""Connections become settings of clients; the hook sends, asks for lag and tests itself."""

import pytest

pytest.importorskip("airflow", reason="pip install 'roquet[airflow]'")
from airflow.sdk import Connection

from roquet.client import ClientConfig, ConfigError
from roquet.client.blocking import PullConsumer, PushConsumer
from roquet.integrations.airflow import get_provider_info
from roquet.integrations.airflow.hook import ClusterSettings, RocketMQHook
from roquet.model.errors import NotFound
from roquet.testing.cluster import BlockingCluster


def connection(**fields: object) -> Connection:
    return Connection(conn_id="mq", conn_type="rocketmq", **fields)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch, roquet_cluster: BlockingCluster) -> RocketMQHook:
    monkeypatch.setenv("AIRFLOW_CONN_MQ", f"rocketmq://{roquet_cluster.namesrv_addr}")
    return RocketMQHook("mq")


def test_a_connection_has_addresses_keys_and_settings() -> None:
    settings = ClusterSettings(
        connection(host="mq-1", login="ak", password="sk", extra='{"namespace": "prod"}')
    )
    config = settings.config(ClientConfig)
    assert settings.namesrv == "mq-1:9876"
    assert (config.access_key, config.secret_key, config.namespace) == ("ak", "sk", "prod")


@pytest.mark.parametrize(
    ("host", "port", "namesrv"),
    [
        ("mq-1", 9000, "mq-1:9000"),
        ("mq-1:9876;mq-2:9876", None, "mq-1:9876;mq-2:9876"),
        ("mq-1:9000", 9876, "mq-1:9000"),
        ("[::1]", None, "[::1]:9876"),
    ],
)
def test_a_host_may_be_one_name_server_or_several(
    host: str, port: int | None, namesrv: str
) -> None:
    assert ClusterSettings(connection(host=host, port=port)).namesrv == namesrv


def test_a_wrong_connection_says_what_to_mend() -> None:
    with pytest.raises(ConfigError, match="connection 'mq': host"):
        ClusterSettings(connection())
    with pytest.raises(ConfigError, match=r"namesace: .*no such setting.*namespace"):
        ClusterSettings(connection(host="a", extra='{"namesace": "x"}')).config(ClientConfig)


def test_texts_of_a_uri_become_what_tls_takes() -> None:
    settings = ClusterSettings(connection(host="a", extra='{"tls": "true"}'))
    assert settings.config(ClientConfig).tls is True


def test_the_hook_sends_and_counts_what_is_left(hook: RocketMQHook) -> None:
    namesrv = hook.settings().namesrv
    assert hook.test_connection() == (True, "brokers: broker-a")
    for body in (b"1", b"2", b"3"):
        assert hook.send("orders", body, tag="new").ok
    with PushConsumer(namesrv, group="billing", topic="orders") as consumer:
        (message,) = consumer.fetch(1)
        message.ack()
    assert hook.lag("billing") == hook.lag("billing", "orders") == 2
    assert hook.lag("billing", "returns") is None
    with pytest.raises(NotFound, match="billing"):
        hook.lag("bilings")
    with PullConsumer(namesrv, group="look") as reader:
        assert sum(map(reader.max_offset, reader.queues("orders"))) == 3


def test_a_cluster_that_is_not_there_fails_the_test_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MQ", "rocketmq://127.0.0.1:1")
    is_there, reason = RocketMQHook("mq").test_connection()
    assert not is_there
    assert "127.0.0.1:1" in reason


def test_the_provider_names_what_exists() -> None:
    path = f"{RocketMQHook.__module__}.{RocketMQHook.__qualname__}"
    assert get_provider_info()["connection-types"] == [
        {"connection-type": RocketMQHook.conn_type, "hook-class-name": path}
    ]
