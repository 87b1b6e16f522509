"""Connections: addresses, failures, forks and event loops."""

import os
import socket
from ssl import CERT_NONE
from typing import Any

import pytest
from kombu import Connection, Consumer, Producer, Queue
from kombu.asynchronous.hub import Hub

from roquet.integrations.celery.transport import Transport
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.tls import Tls
from roquet.testing.cluster import BlockingCluster


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
