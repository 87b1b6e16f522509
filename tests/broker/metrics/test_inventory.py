import pytest
from tests.broker.conftest import FakePeer
from tests.broker.metrics.conftest import Collect

from roquet.broker.broker import Broker
from roquet.broker.metrics.inventory import (
    add_consumers,
    add_inventory,
    language_name,
    version_name,
)
from roquet.model.subscription import ConsumerData, HeartbeatData, ProducerData, Subscription
from roquet.wire.codes import VERSION_GO_AWAY, VERSION_STANDARD_JSON


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (513, "v5_5_0"),
        (512, "v5_5_0_snapshot"),
        (511, "v5_4_9"),
        (VERSION_GO_AWAY, "v5_3_1"),
        (VERSION_STANDARD_JSON, "v4_9_4"),
        (121, "121"),
        (0, "0"),
        (-7, "-7"),
        (2**31 - 1, "2147483647"),
    ],
)
def test_versions_are_named_as_apache_does(number: int, name: str) -> None:
    assert version_name(number) == name


def test_languages_are_named_as_apache_does() -> None:
    assert [language_name(number) for number in (0, 3, 13, 99)] == [
        "java", "python", "node_js", "99",
    ]  # fmt: skip


async def test_tables_and_requests_are_counted(broker: Broker, collect: Collect) -> None:
    broker.control.admission.gates["pull"].enter("peer", 10)
    broker.control.admission.gates["send"].enter("peer", 10)
    page = await collect(add_inventory)
    assert page.one("rocketmq_broker_permission") == 6
    assert page.one("rocketmq_topic_number") == len(list(broker.tables.topics))
    assert page.one("rocketmq_consumer_group_number") == len(list(broker.tables.groups))
    assert page.one("rocketmq_processor_watermark", processor="send") == 1
    assert page.one("rocketmq_processor_watermark", processor="pull") == 0
    assert page.one("roquet_waiting_requests", kind="pull") == 1
    assert page.one("roquet_waiting_requests_limit", kind="send") == 10_000


async def test_connections_are_counted_by_language_and_version(
    broker: Broker, collect: Collect
) -> None:
    consumer = ConsumerData(
        group_name="billing", subscription_data_set=[Subscription(topic="orders")]
    )
    for number, (language, version) in enumerate([(0, 513), (0, 513), (3, 401)]):
        peer = FakePeer()
        peer.language, peer.version = language, version
        broker.tables.clients.beat(
            peer,
            HeartbeatData(
                client_id=f"c{number}",
                producer_data_set=[ProducerData(group_name=name) for name in ("p", "q")],
                consumer_data_set=[consumer],
            ),
        )
    page = await collect(add_inventory)
    name = "rocketmq_producer_connections"
    assert page.one(name, language="java", version="v5_5_0", protocol_type="remoting") == 2
    assert page.one(name, language="python", version="v4_9_4") == 1
    page = await collect(lambda broker, page: add_consumers(broker, page, "billing"))
    assert page.one(
        "rocketmq_consumer_connections",
        consumer_group="billing", consume_mode="push", language="java", is_system="false",
    ) == 2  # fmt: skip
    assert not (await collect(lambda broker, page: add_consumers(broker, page, "none"))).values
