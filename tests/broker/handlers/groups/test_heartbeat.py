import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, LocalBroker, heartbeat_of, local, not_none, refuses

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.groups import heartbeat as handlers
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables import clients
from roquet.broker.tables.clients import ConsumerGroup
from roquet.model.errors import CallRefused, FieldError
from roquet.model.subscription import ConsumerData, HeartbeatData, ProducerData, Subscription
from roquet.model.topic import SubscriptionGroup
from roquet.rules.balance.group_consistency import without_retry_topics
from roquet.wire.calls.bodies import CheckClientBody, ConsumerIdList
from roquet.wire.calls.heartbeat import (
    CheckSubscription,
    ConsumersChanged,
    GetConsumers,
    Heartbeat,
    Unregister,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

VECTORS = Path(__file__).parents[3] / "vectors"


def beat(broker: LocalBroker, peer: FakePeer, client_id: str, *groups: str, **fields: Any) -> Any:
    consumers = [
        ConsumerData(group_name=group, subscription_data_set=[Subscription(topic="orders")])
        for group in groups
    ]
    data = HeartbeatData(client_id=client_id, consumer_data_set=consumers, **fields)
    return broker.beat(data, peer)


def members(broker: LocalBroker, peer: FakePeer, group: str) -> list[str]:
    body = broker.ask(GetConsumers(consumer_group=group), peer).body
    return codec.loads(body, ConsumerIdList).consumer_id_list


def queues_of(broker: LocalBroker, topic: str) -> int:
    config = broker.tables.topics.get(topic)
    return config.read_queue_nums if config else 0


async def test_a_heartbeat_makes_group_and_retry_topic(broker: LocalBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup(group_name="known", retry_queue_nums=3), 0)
    reply = beat(broker, broker.peer, "c1", "billing", "known")
    assert (reply.code, reply.supports_v2, reply.subscription_changed) == (0, True, True)
    assert broker.tables.groups.get("billing") is not None
    assert queues_of(broker, "%RETRY%billing") == 1
    assert queues_of(broker, "%RETRY%known") == 3


async def test_members_are_listed_and_notified_of_each_other(broker: LocalBroker) -> None:
    first, second = FakePeer(), FakePeer()
    beat(broker, first, "c1", "billing")
    first.told.clear()
    beat(broker, second, "c2", "billing")
    changed = ConsumersChanged(consumer_group="billing")
    assert first.told == [changed]
    assert second.told == [changed]
    beat(broker, second, "c2", "billing")
    assert first.told == [changed], "the same again is no news"
    assert members(broker, first, "billing") == ["c1", "c2"]


async def test_a_client_that_disconnects_leaves_its_group_at_once(broker: LocalBroker) -> None:
    first, second = FakePeer(), FakePeer()
    beat(broker, first, "c1", "billing")
    beat(broker, second, "c2", "billing")
    second.told.clear()
    first.hang_up()
    assert second.told == [ConsumersChanged(consumer_group="billing")]
    assert members(broker, second, "billing") == ["c2"]


async def test_a_client_that_unregisters_leaves_its_group_at_once(broker: LocalBroker) -> None:
    first, second = FakePeer(), FakePeer()
    beat(broker, first, "c1", "billing")
    beat(broker, second, "c2", "billing")
    second.told.clear()
    broker.ask(Unregister(client_id="c1", consumer_group="billing"), first)
    broker.ask(Unregister(client_id="c1", producer_group="pg"), first)
    assert second.told == [ConsumersChanged(consumer_group="billing")]
    assert members(broker, second, "billing") == ["c2"]


async def test_a_group_without_members_is_answered_in_apaches_words(broker: LocalBroker) -> None:
    with refuses(ResponseCode.SYSTEM_ERROR, "no consumer for this group, billing"):
        broker.ask(GetConsumers(consumer_group="billing"))


async def test_a_group_can_switch_off_notifications(broker: LocalBroker) -> None:
    quiet = SubscriptionGroup(group_name="billing", notify_consumer_ids_changed_enable=False)
    broker.tables.groups.put(quiet, 0)
    first, second = FakePeer(), FakePeer()
    beat(broker, first, "c1", "billing")
    beat(broker, second, "c2", "billing")
    assert first.told == []


@pytest.mark.parametrize("settings", [{"notify_members": False}])
async def test_notification_of_members_can_be_switched_off(broker: LocalBroker) -> None:
    first, second = FakePeer(), FakePeer()
    beat(broker, first, "c1", "billing")
    beat(broker, second, "c2", "billing")
    assert first.told == []


async def test_a_short_heartbeat_stands_for_the_last_full_one(broker: LocalBroker) -> None:
    short = {"heartbeat_fingerprint": 77, "without_sub": True}
    assert beat(broker, broker.peer, "c1", **short).subscription_changed, "the full one is wanted"
    beat(broker, broker.peer, "c1", "billing", heartbeat_fingerprint=77)
    assert not beat(broker, broker.peer, "c1", **short).subscription_changed
    assert members(broker, broker.peer, "billing") == ["c1"]


def recorded(client: str) -> list[dict[str, Any]]:
    lines = (VECTORS / f"requests-{client}.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["header"]["code"] == Heartbeat.code]


@pytest.mark.parametrize(
    ("client", "group"), [("cpp-client-0.4.4", "CID_T044"), ("js-client-3.12.0", None)]
)
async def test_heartbeats_of_other_clients_are_understood(
    broker: LocalBroker, client: str, group: str | None
) -> None:
    for row in recorded(client):
        assert broker.ask(Heartbeat(body=row["body"].encode())).code == 0
    if group:
        consumers = not_none(broker.tables.clients.consumers(group))
        assert consumers.subscriptions["T044"].sub_string == "tagA"
        assert members(broker, broker.peer, group)[0].endswith("@DEFAULT")


@pytest.mark.parametrize("body", [b"", b"{", b'{"consumerDataSet":[]}', b'{"clientID":[1]}'])
async def test_a_broken_heartbeat_is_the_clients_fault(broker: LocalBroker, body: bytes) -> None:
    with pytest.raises(FieldError):
        broker.ask(Heartbeat(body=body))


async def test_hundreds_of_new_groups_in_one_heartbeat_are_saved_together(tmp_path: Path) -> None:
    config = BrokerConfig(host="127.0.0.1", port=0, store_dir=tmp_path)
    async with BrokerServer(config) as server:
        saved = [tmp_path / "config" / name for name in ("topics.json", "subscriptionGroup.json")]
        before = [path.read_bytes() for path in saved]
        versions = (
            server.broker.tables.topics.version.counter,
            server.broker.tables.groups.version.counter,
        )
        beat(local(server.broker), FakePeer(), "c1", *(f"g{n}" for n in range(500)))
        assert [path.read_bytes() for path in saved] == before, "saved with the next save"
        versions_now = (
            server.broker.tables.topics.version.counter,
            server.broker.tables.groups.version.counter,
        )
        assert [now - then for now, then in zip(versions_now, versions, strict=True)] == [1, 1]
    assert all(b"g499" in path.read_bytes() for path in saved)


async def test_a_retry_topic_is_on_the_disk_before_its_first_message(tmp_path: Path) -> None:
    config = BrokerConfig(host="127.0.0.1", port=0, store_dir=tmp_path)
    async with BrokerServer(config) as server:
        broker = local(server.broker)
        beat(broker, broker.peer, "c1", "billing")
        assert "%RETRY%billing" not in broker.tables.topics.sendable
        group = not_none(broker.tables.groups.get("billing"))
        broker.delivery.retry_topics.retry_topic(group)
        assert b"%RETRY%billing" in (tmp_path / "config" / "topics.json").read_bytes()
        assert "%RETRY%billing" in broker.tables.topics.sendable


async def test_a_heartbeat_beyond_what_clients_mean_is_refused(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused, match="1001 consumer groups on one connection, the limit is"):
        beat(broker, broker.peer, "c1", *(f"g{n}" for n in range(1_001)))
    assert broker.tables.groups.get("g0") is None, "nothing of it was done"
    beat(broker, broker.peer, "c1", *(f"g{n}" for n in range(1_000)))
    with pytest.raises(CallRefused, match="1001 consumer groups"):
        beat(broker, broker.peer, "c1", "another")
    producers = [ProducerData(group_name=f"p{n}") for n in range(10_001)]
    with pytest.raises(CallRefused, match="10001 producer groups"):
        beat(broker, broker.peer, "c1", producer_data_set=producers)
    subscriptions = [Subscription(topic=f"t{n}") for n in range(4_097)]
    with pytest.raises(CallRefused, match="4097 subscriptions in one heartbeat"):
        broker.beat(heartbeat_of("c1", *subscriptions, group="g1"))


async def test_an_illegal_group_gets_no_topic(broker: LocalBroker) -> None:
    beat(broker, broker.peer, "c1", "no good name")
    assert broker.tables.groups.get("no good name") is None
    assert broker.tables.topics.get("%RETRY%no good name") is None


def check(broker: LocalBroker, **subscription: Any) -> int:
    body = CheckClientBody(
        client_id="c", group="g", subscription_data=Subscription(topic="t", **subscription)
    )
    return int(broker.ask(CheckSubscription(body=codec.dumps(body))).code)


async def test_a_subscription_is_checked_before_it_is_used(broker: LocalBroker) -> None:
    assert check(broker, sub_string="a || b") == 0
    assert check(broker, sub_string="a > 1", expression_type="SQL92") == 0
    with refuses(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "at character 4 of 'a >'"):
        check(broker, sub_string="a >", expression_type="SQL92")
    broker.configure(property_filter="false")
    with refuses(ResponseCode.SYSTEM_ERROR, "filter message by SQL92"):
        check(broker, sub_string="a > 1", expression_type="SQL92")
    with refuses(ResponseCode.SUBSCRIPTION_PARSE_FAILED):
        check(broker, sub_string="||")
    assert broker.ask(CheckSubscription()).code == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"clientId":"c","group":"g"}', 0),
        (b'{"subscriptionData":{"subString":"a > 1","expressionType":"SQL92"}}', 0),
        (b'{"subscriptionData":{"topic":null,"subString":"a >","expressionType":"SQL92"}}', 23),
    ],
)
async def test_an_expression_is_checked_whoever_asks_for_whatever_topic(
    broker: LocalBroker, body: bytes, code: int
) -> None:
    try:
        actual = broker.ask(CheckSubscription(body=body)).code
    except CallRefused as refused:
        actual = refused.code
    assert actual == code


async def test_members_with_different_subscriptions_are_logged_once(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def wish(peer: FakePeer, client_id: str, tags: str) -> None:
        wanted = Subscription(topic="orders", sub_string=tags)
        retry = Subscription(topic="%RETRY%g")
        subscriptions = [wanted, retry] if client_id == "c1" else [wanted]
        broker.beat(heartbeat_of(client_id, *subscriptions, group="g"), peer)

    first, second, third = FakePeer(), FakePeer(), FakePeer()
    wish(first, "c1", "*")
    wish(second, "c2", "*")
    assert "different things" not in caplog.text, "the retry topic is no difference"
    wish(second, "c2", "A")
    wish(third, "c3", "B")
    assert caplog.text.count("members of g listen to different things") == 1
    assert "(1 member); members of a group share all its messages: give each" in caplog.text
    wish(second, "c2", "*")
    wish(third, "c3", "*")
    wish(third, "c3", "B")
    assert caplog.text.count("members of g listen to different things") == 2
    assert [vars(record)["group"] for record in caplog.records] == ["g", "g"]


async def test_an_inconsistent_group_is_compared_again_after_a_change(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[int]()
    look = ConsumerGroup.wants_different_things

    def counted(group: ConsumerGroup) -> bool:
        looks.append(len(group.members))
        return look(group)

    def wish(peer: FakePeer, tags: str) -> None:
        wanted = Subscription(topic="orders", sub_string=tags, sub_version=ord(tags))
        broker.beat(heartbeat_of(peer.address, wanted, group="g"), peer)

    monkeypatch.setattr(ConsumerGroup, "wants_different_things", counted)
    peers = [FakePeer() for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.address = f"10.0.0.{number}:1"
    for peer, tags in zip(peers, "ABA", strict=True):
        wish(peer, tags)
    assert looks == [1, 2, 3]
    for _ in range(3):
        for peer, tags in zip(peers, "ABA", strict=True):
            wish(peer, tags)
    assert looks == [1, 2, 3], "nothing has changed"
    broker.tables.clients.drop(peers[2])
    wish(peers[0], "A")
    assert looks == [1, 2, 3, 2], "one has gone"
    group = not_none(broker.tables.clients.consumers("g"))
    assert group.is_divided
    wish(peers[1], "A")
    assert (looks, group.is_divided) == ([1, 2, 3, 2, 2], False)


async def test_a_bad_expression_in_heartbeats_is_logged_once(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    wants = Subscription(topic="orders", sub_string="a >", expression_type="SQL92")
    for _ in range(3):
        broker.beat(heartbeat_of("c", wants))
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "group billing, topic orders"
    ]


@pytest.mark.parametrize(
    "body",
    [
        b'{"consumerDataSet":[]}',
        b'{"clientID":"c","producerDataSet":[{}]}',
        b'{"clientID":"c","consumerDataSet":[{"messageModel":"CLUSTERING"}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
    ],
)
async def test_a_client_group_or_topic_needs_a_name(broker: LocalBroker, body: bytes) -> None:
    with pytest.raises(FieldError, match="is missing"):
        broker.ask(Heartbeat(body=body))
    assert broker.peer not in broker.tables.clients


async def test_subscriptions_are_compared_with_one_member_of_many(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[int]()

    def counted(subscriptions: Mapping[str, str]) -> dict[str, str]:
        looks.append(len(subscriptions))
        return without_retry_topics(subscriptions)

    monkeypatch.setattr(clients, "without_retry_topics", counted)
    monkeypatch.setattr(handlers, "without_retry_topics", counted)
    members = 20
    for number in range(members):
        subscriptions = [Subscription(topic=f"t{n}", sub_string="*") for n in range(1_000)]
        subscriptions.append(Subscription(topic="last", sub_string=f"{'x' * 50_000}{number}"))
        broker.beat(heartbeat_of(f"c{number}", *subscriptions, group="g"), FakePeer())
    assert len(looks) == members + 2, "each one's own, and the two that are told of"
    assert caplog.text.count("listen to different things") == 1
    assert len(caplog.text) < 1_000


async def test_without_access_control_a_users_name_counts_for_nothing(broker: LocalBroker) -> None:
    """Else a client that comes back with another key would not be told of replies."""
    first, second = FakePeer(), FakePeer()
    data = HeartbeatData(client_id="c1", producer_data_set=[ProducerData(group_name="pg")])
    for peer, key in ((first, "old"), (second, "new")):
        broker.ask(Heartbeat(body=codec.dumps(data), access_key=key), peer)
    assert broker.tables.clients.user(second) == ""
    assert broker.tables.clients.producer("c1") is second
