from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.broker import Broker
from roquet.broker.handlers.admin.settings import SettingsHandler
from roquet.broker.handlers.groups.heartbeat import HeartbeatHandler
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.model.errors import CallRefused
from roquet.model.subscription import HeartbeatData
from roquet.model.topic import DataVersion
from roquet.wire.calls.admin.settings import GetSettings, UpdateSettings
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.pull import Pull
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import read_properties


def change(broker: Broker, peer: FakePeer, text: str | bytes) -> None:
    body = text if isinstance(text, bytes) else text.encode()
    broker.bind(SettingsHandler.update)(UpdateSettings(body=body), peer)


def described(broker: Broker, peer: FakePeer) -> tuple[dict[str, str], DataVersion]:
    reply = broker.bind(SettingsHandler.settings)(GetSettings(), peer)
    return read_properties(reply.body.decode()), codec.loads(reply.version, DataVersion)


async def test_a_changed_setting_is_reported_and_takes_effect(
    broker: Broker, peer: FakePeer
) -> None:
    before, version = described(broker, peer)
    assert (before["maxMessageSize"], before["brokerPermission"]) == ("4194304", "6")
    change(broker, peer, "maxMessageSize=10\nlongPollingEnable=false\nclient_silence=1s\n")
    after, newer = described(broker, peer)
    assert (after["maxMessageSize"], after["longPollingEnable"]) == ("10", "false")
    assert newer.counter == version.counter + 1
    assert broker.control.settings.config.client_silence == 1_000


async def test_every_setting_that_apaches_broker_reports_is_reported(
    broker: Broker, peer: FakePeer
) -> None:
    values, _ = described(broker, peer)
    assert len(values) > 480
    assert values["brokerIP1"] == values["brokerIP2"] == "127.0.0.1"
    change(broker, peer, "forwardTimeout=1\nfetchNamesrvAddrInterval=5")
    after, _ = described(broker, peer)
    assert after == values | {"forwardTimeout": "1", "fetchNamesrvAddrInterval": "5"}


async def test_a_smaller_limit_counts_from_the_next_message_on(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(b"x" * 11), peer)
    change(broker, peer, "maxMessageSize=10")
    reply: Any = broker.bind(SendHandler.send)(message(b"x" * 11), peer)
    assert (reply.code, "10" in reply.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    change(broker, peer, "maxMessageSize=4MiB")
    reply = broker.bind(SendHandler.send)(message(b"x" * 11), peer)
    assert reply.code == 0


async def test_missing_permission_is_refused_in_apaches_words(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    name = broker.control.settings.config.broker_name
    broker.bind(SendHandler.send)(message(), peer)
    change(broker, peer, "brokerPermission=4")
    new: Any = broker.bind(SendHandler.send)(message(topic="another"), peer)
    known: Any = broker.bind(SendHandler.send)(message(), peer)
    assert [new.code, known.code] == [ResponseCode.NO_PERMISSION] * 2
    assert name in known.remark
    change(broker, peer, "brokerPermission=2")
    assert getattr(broker.bind(SendHandler.send)(message(), peer), "code", None) == 0
    asked = Pull(
        consumer_group="g", topic="orders", queue_id=0, queue_offset=0, max_msg_nums=1,
        sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
    )  # fmt: skip
    reply: Any = broker.bind(PullHandler.pull)(asked, peer)
    assert reply.remark == f"the broker[{name}] pulling message is forbidden"


async def test_a_changed_permission_is_registered_with_name_servers(
    broker: Broker, peer: FakePeer
) -> None:
    version, heard = broker.tables.topics.version, list[str]()
    broker.tables.topics.on_change.append(lambda: heard.append("again"))
    change(broker, peer, "brokerPermission=4")
    assert (broker.tables.topics.version.counter, heard) == (version.counter + 1, ["again"])


async def test_automatic_creation_is_switched_off_and_on(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    change(broker, peer, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false")
    reply: Any = broker.bind(SendHandler.send)(message(topic="unknown"), peer)
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.tables.groups.find("nobody", 0) is None
    change(broker, peer, "autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true")
    reply = broker.bind(SendHandler.send)(message(topic="unknown"), peer)
    assert reply.code == 0
    assert broker.tables.groups.find("nobody", 0) is not None


class TestWithoutAutomaticTopics:
    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"auto_create_topic": False}

    async def test_the_template_topic_is_created_with_automatic_creation(
        self, broker: Broker, peer: FakePeer, message: MakeSend
    ) -> None:
        assert broker.tables.topics.get("TBW102") is None
        change(broker, peer, "autoCreateTopicEnable=true")
        assert getattr(broker.bind(SendHandler.send)(message(), peer), "code", None) == 0


async def test_a_changed_retention_is_used_by_the_store(broker: Broker, peer: FakePeer) -> None:
    change(broker, peer, "fileReservedTime=5\ndeleteWhen=07\ndiskMaxUsedSpaceRatio=60")
    policy = broker.log.store.retention
    assert (policy.reserved_ms, policy.delete_hour) == (5 * 3_600_000, 7)
    assert policy.expire_ratio == 0.6


async def test_the_silence_limit_of_a_client_is_the_one_of_its_last_heartbeat(
    broker: Broker, peer: FakePeer
) -> None:
    change(broker, peer, "client_silence=5s")
    body = codec.dumps(HeartbeatData(client_id="c@1"))
    broker.bind(HeartbeatHandler.heartbeat)(Heartbeat(body=body), peer)
    now_ms = broker.control.clock.monotonic_ms()
    assert broker.tables.clients.silent(now_ms + 4_000) == []
    assert broker.tables.clients.silent(now_ms + 6_000) == [peer]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"\xff\xfe=1", ResponseCode.SYSTEM_ERROR),
        (b"regionId=\\u12", ResponseCode.SYSTEM_ERROR),
        (b"regionId=x\\nlistenPort=1", ResponseCode.INVALID_PARAMETER),
        (b"rocketmqHome=/tmp", ResponseCode.NO_PERMISSION),
        (b"brokerName=other", ResponseCode.INVALID_PARAMETER),
        (b"maxMessageSize=-5", ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_an_invalid_setting_changes_nothing(
    broker: Broker, peer: FakePeer, body: bytes, code: ResponseCode
) -> None:
    before = broker.control.settings.config
    with pytest.raises(CallRefused) as refused:
        change(broker, peer, b"brokerPermission=4\n" + body)
    assert refused.value.code == code
    assert broker.control.settings.config is before


async def test_an_empty_change_is_ignored(broker: Broker, peer: FakePeer) -> None:
    before = broker.control.settings.config
    change(broker, peer, b"")
    assert broker.control.settings.config is before
