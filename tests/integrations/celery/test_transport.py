"""Connections: addresses, failures, forks and event loops."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from ssl import CERT_NONE
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.asynchronous.hub import Hub
from tests.integrations.celery.test_channel import in_seconds

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.integrations.celery.transport import Transport
from roquet.model.errors import ConfigError
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.tls import ServerTls, Tls
from roquet.testing.cluster import BlockingCluster
from roquet.wire.signing import Credentials

CERTIFICATES = Path(__file__).parents[2] / "certificates"
CA = CERTIFICATES / "ca.pem"
USER = Credentials(access_key="shop", secret_key="hush/hush")


def settings(url: Any, **named: Any) -> tuple[list[str], dict[str, Any]]:
    transport = Connection(url, **named).transport
    assert isinstance(transport, Transport)
    return transport.addresses(), transport.settings()


def test_a_url_names_name_server_keys_and_namespace() -> None:
    addresses, config = settings("rocketmq://key:s%2Fcret@mq:9999/shop")
    assert addresses == ["mq:9999"]
    assert (config["access_key"], config["secret_key"]) == ("key", "s/cret")
    assert config["namespace"] == "shop"
    assert config["tls"] is None
    assert settings("rocketmq://")[0] == ["localhost:9876"]


def test_several_urls_are_several_name_servers() -> None:
    assert settings("rocketmq://a;rocketmq://b:1")[0] == ["a:9876", "b:1"]
    assert settings(["rocketmq://a", "rocketmq://b:1"])[0] == ["a:9876", "b:1"]


def test_tls_is_asked_for_by_the_scheme_by_parameters_or_by_celery() -> None:
    assert settings("rocketmqs://mq/")[1]["tls"] == Tls()
    assert settings("rocketmq://mq/?ssl_ca_certs=/ca.pem")[1]["tls"] == Tls(ca="/ca.pem")
    options = {"certfile": "c", "keyfile": "k", "cert_reqs": CERT_NONE}
    assert settings("rocketmq://mq/", ssl=options)[1]["tls"] == Tls(cert="c", key="k", verify=False)
    named = settings("rocketmqs://10.0.0.1/?ssl_server_hostname=mq.example")[1]["tls"]
    assert named == Tls(server_name="mq.example")


def test_a_tls_option_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"TLS options cafile: .* ca_certs"):
        settings("rocketmqs://mq/?ssl_cafile=/ca.pem")


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    """Address of a name server; it and its broker want TLS, certificates and signatures."""
    cert, key = CERTIFICATES / "server.pem", CERTIFICATES / "server.key"
    tls = ServerTls(cert=cert, key=key, client_ca=CA)
    names = NameServer(NameServerConfig(host="127.0.0.1", port=0, tls=tls))
    with BlockingCluster() as lent:  # its thread alone
        lent.run(names.__aenter__())
        config = BrokerConfig(
            host="127.0.0.1", port=0, advertise="127.0.0.1", vip_port=False,
            name_servers=(names.address,),
            tls_cert=cert, tls_key=key, tls_ca=CA, tls_client_ca=CA,
            authentication_enabled=True, authorization_enabled=True,
            initial_user=USER, inner_credentials=USER, recall_message=True,
        )  # fmt: skip
        broker = BrokerServer(config)
        lent.run(broker.__aenter__())
        yield names.address
        lent.run(broker.__aexit__(None, None, None))
        lent.run(names.__aexit__(None, None, None))


FILES = f"ssl_certfile={CERTIFICATES / 'client.pem'}&ssl_keyfile={CERTIFICATES / 'client.key'}"


def test_tasks_go_by_tls_and_are_signed_with_the_keys_of_the_url(secured: str) -> None:
    url = f"rocketmqs://shop:hush%2Fhush@{secured}/tls?ssl_ca_certs={CA}&{FILES}"
    queue, news = Queue("kept"), Queue("news", Exchange("news", "fanout"), exclusive=True)
    with Connection(url) as connection, Connection(url) as publishing:
        seen: list[Any] = []
        with Consumer(connection, [queue, news], on_message=seen.append):
            producer = Producer(publishing.default_channel)
            producer.publish("plain", routing_key="kept")
            producer.publish("all", exchange="news", routing_key="")
            headers = in_seconds(900)
            producer.publish("later", routing_key="kept", headers=headers, correlation_id="l")
            while len(seen) < 2:
                connection.drain_events(timeout=10)
            for message in seen:
                message.ack()
        clients = connection.transport.clients
        assert clients.run(clients.recall("l"))
    assert sorted(message.payload for message in seen) == ["all", "plain"]


@pytest.mark.parametrize(
    ("keys", "options", "error"),
    [
        ("shop:guessed", f"ssl_ca_certs={CA}&{FILES}", "signature"),
        ("nobody:x", f"ssl_ca_certs={CA}&{FILES}", "nobody"),
        ("shop:hush%2Fhush", FILES, "certificate is not trusted"),
        ("shop:hush%2Fhush", f"ssl_ca_certs={CA}", "certificate of ours"),
    ],
)
def test_wrong_keys_and_certificates_are_connection_errors_that_say_so(
    secured: str, keys: str, options: str, error: str
) -> None:
    connection = Connection(f"rocketmqs://{keys}@{secured}/?{options}")
    with connection, pytest.raises(connection.connection_errors, match=error):
        Producer(connection.channel()).publish("x", routing_key="q", declare=[Queue("q")])


def test_a_server_that_is_not_there_is_a_connection_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        connection = Connection(f"rocketmq://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(connection.connection_errors):
            connection.connect()
        connection.release()


def test_consumers_outlive_a_restart_of_the_broker(tmp_path: Any) -> None:
    queue = Queue("jobs")
    with (
        BlockingCluster(store=tmp_path) as cluster,
        Connection(f"rocketmq://{cluster.namesrv_addr}") as connection,
    ):
        seen: list[Any] = []
        producer = Producer(connection.channel())
        with Consumer(connection, [queue], on_message=seen.append, no_ack=True):
            cluster.stop_broker(0)
            cluster.start_broker(0)
            producer.publish("after", routing_key="jobs", retry=True)
            connection.drain_events(timeout=20)
        assert [message.payload for message in seen] == ["after"]


def test_a_countdown_goes_on_while_the_broker_is_away(tmp_path: Path) -> None:
    with (
        BlockingCluster(store=tmp_path) as cluster,
        Connection(f"rocketmq://{cluster.namesrv_addr}") as connection,
    ):
        seen: list[Any] = []
        with Consumer(connection, [Queue("jobs")], on_message=seen.append, no_ack=True):
            Producer(connection.channel()).publish("x", routing_key="jobs", headers=in_seconds(2))
            cluster.stop_broker(0)
            time.sleep(2.5)
            cluster.start_broker(0)
            connection.drain_events(timeout=20)
        assert [message.payload for message in seen] == ["x"]


def test_a_forked_child_has_clients_of_its_own(connection: Connection) -> None:
    queue = Queue("forked")
    producer = Producer(connection.default_channel)
    producer.publish("parent", routing_key="forked", declare=[queue])
    if (child := os.fork()) == 0:
        status = 1
        try:
            producer.publish("child", routing_key="forked")
            connection.release()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = [queue(connection.default_channel).get() for _ in range(2)]
    assert sorted(message.payload for message in found if message) == ["child", "parent"]


def test_a_forked_child_that_settles_a_message_is_told_that_it_cannot(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    publisher, queue = Producer(connection.default_channel), Queue("inherited")
    publisher.publish("one", routing_key="inherited", declare=[queue])
    message = queue(connection.default_channel).get()
    if (child := os.fork()) == 0:
        status = 1
        try:
            message.ack()
            status = int("cannot be settled in a forked child" not in caplog.text)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    message.ack()


def test_an_event_loop_is_told_of_messages(url: str) -> None:
    hub, queue = Hub(), Queue("looped")
    with Connection(url) as connection:
        connection.default_channel.basic_qos(0, 1, False)
        connection.register_with_event_loop(hub)
        seen: list[Any] = []
        with Consumer(connection, [queue], on_message=seen.append):
            producer = Producer(connection.channel())
            for n in range(3):
                producer.publish(n, routing_key="looped")
            until = SYSTEM_CLOCK.monotonic_ms() / 1000 + 10
            while len(seen) < 3 and SYSTEM_CLOCK.monotonic_ms() / 1000 < until:
                hub.run_once()
                for message in seen:
                    if not message.acknowledged:
                        message.ack()
        assert len(seen) == 3
        connection.transport.unregister_from_event_loop(connection.connection, hub)
    hub.close()
