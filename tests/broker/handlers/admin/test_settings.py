import pytest
from tests.broker.conftest import LocalBroker, make_pull, refuses

from roquet.broker.handlers.admin import settings as handlers
from roquet.model.errors import CallRefused
from roquet.model.subscription import HeartbeatData
from roquet.model.topic import DataVersion
from roquet.wire.calls.admin.settings import (
    ColdReadLimitTable,
    GetColdReadLimits,
    GetSettings,
    RemoveColdReadLimit,
    SetColdReadLimits,
    SetReadAhead,
    UpdateSettings,
)
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import read_properties


def change(broker: LocalBroker, text: str | bytes) -> None:
    body = text if isinstance(text, bytes) else text.encode()
    broker.ask(UpdateSettings(body=body))


def described(broker: LocalBroker) -> tuple[dict[str, str], DataVersion]:
    reply = broker.ask(GetSettings())
    return read_properties(reply.body.decode()), codec.loads(reply.version, DataVersion)


async def test_a_changed_setting_is_reported_and_takes_effect(broker: LocalBroker) -> None:
    before, version = described(broker)
    assert (before["maxMessageSize"], before["brokerPermission"]) == ("4194304", "6")
    change(broker, "maxMessageSize=10\nlongPollingEnable=false\nclient_silence=1s\n")
    after, newer = described(broker)
    assert (after["maxMessageSize"], after["longPollingEnable"]) == ("10", "false")
    assert newer.counter == version.counter + 1
    assert broker.control.settings.config.client_silence == 1_000


async def test_every_setting_that_apaches_broker_reports_is_reported(broker: LocalBroker) -> None:
    values, _ = described(broker)
    assert len(values) > 480
    assert values["brokerIP1"] == values["brokerIP2"] == "127.0.0.1"
    change(broker, "forwardTimeout=1\nfetchNamesrvAddrInterval=5")
    after, _ = described(broker)
    assert after == values | {"forwardTimeout": "1", "fetchNamesrvAddrInterval": "5"}


async def test_a_smaller_limit_counts_from_the_next_message_on(broker: LocalBroker) -> None:
    broker.send(b"x" * 11)
    change(broker, "maxMessageSize=10")
    reply = broker.send(b"x" * 11)
    assert (reply.code, "10" in reply.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    change(broker, "maxMessageSize=4MiB")
    assert broker.send(b"x" * 11).code == 0


async def test_missing_permission_is_refused_in_apaches_words(broker: LocalBroker) -> None:
    name = broker.control.settings.config.broker_name
    broker.send()
    change(broker, "brokerPermission=4")
    new = broker.send(topic="another")
    known = broker.send()
    assert [new.code, known.code] == [ResponseCode.NO_PERMISSION] * 2
    assert name in known.remark
    change(broker, "brokerPermission=2")
    assert getattr(broker.send(), "code", None) == 0
    assert broker.ask(make_pull()).remark == f"the broker[{name}] pulling message is forbidden"


async def test_a_changed_permission_is_registered_with_name_servers(broker: LocalBroker) -> None:
    version, heard = broker.tables.topics.version, list[str]()
    broker.tables.topics.on_change.append(lambda: heard.append("again"))
    change(broker, "brokerPermission=4")
    assert (broker.tables.topics.version.counter, heard) == (version.counter + 1, ["again"])


async def test_automatic_creation_is_switched_off_and_on(broker: LocalBroker) -> None:
    change(broker, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false")
    assert broker.send(topic="unknown").code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.tables.groups.find("nobody", 0) is None
    change(broker, "autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true")
    assert broker.send(topic="unknown").code == 0
    assert broker.tables.groups.find("nobody", 0) is not None


@pytest.mark.parametrize("settings", [{"auto_create_topic": False}])
async def test_the_template_topic_is_created_with_automatic_creation(broker: LocalBroker) -> None:
    assert broker.tables.topics.get("TBW102") is None
    change(broker, "autoCreateTopicEnable=true")
    assert getattr(broker.send(), "code", None) == 0


async def test_a_changed_retention_is_used_by_the_store(broker: LocalBroker) -> None:
    change(broker, "fileReservedTime=5\ndeleteWhen=07\ndiskMaxUsedSpaceRatio=60")
    policy = broker.log.store.retention
    assert (policy.reserved_ms, policy.delete_hour) == (5 * 3_600_000, 7)
    assert policy.expire_ratio == 0.6


async def test_the_silence_limit_of_a_client_is_of_its_last_heartbeat(broker: LocalBroker) -> None:
    change(broker, "client_silence=5s")
    body = codec.dumps(HeartbeatData(client_id="c@1"))
    broker.ask(Heartbeat(body=body))
    now_ms = broker.control.clock.monotonic_ms()
    assert broker.tables.clients.silent(now_ms + 4_000) == []
    assert broker.tables.clients.silent(now_ms + 6_000) == [broker.peer]


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
    broker: LocalBroker, body: bytes, code: ResponseCode
) -> None:
    before = broker.control.settings.config
    with refuses(code):
        change(broker, b"brokerPermission=4\n" + body)
    assert broker.control.settings.config is before


async def test_an_empty_change_is_ignored(broker: LocalBroker) -> None:
    before = broker.control.settings.config
    change(broker, b"")
    assert broker.control.settings.config is before


def read_limits(broker: LocalBroker) -> ColdReadLimitTable:
    return codec.loads(broker.ask(GetColdReadLimits()).body, ColdReadLimitTable)


async def test_limits_are_kept_and_listed_as_without_effect(broker: LocalBroker) -> None:
    reply = broker.ask(SetColdReadLimits(body=b"gg=1000\nhh=-1\n"))
    assert (reply.code, "without effect" in (reply.remark or "")) == (0, True)
    assert read_limits(broker).config_table == {"gg": 1000, "hh": -1}
    broker.ask(RemoveColdReadLimit(body=b"gg"))
    assert read_limits(broker).config_table == {"hh": -1}


async def test_a_limit_is_kept_until_it_is_removed(broker: LocalBroker) -> None:
    for limits in (b"g=1\nh=2\n", b"g=3"):
        broker.ask(SetColdReadLimits(body=limits))
    for group in (b"h", b"nobody"):
        broker.ask(RemoveColdReadLimit(body=group))
    assert read_limits(broker).config_table == {"g": 3}


async def test_limits_of_too_many_groups_are_refused_all_together(broker: LocalBroker) -> None:
    lines = "\n".join(f"g{n}={n}" for n in range(handlers.GROUPS_MAX))
    broker.ask(SetColdReadLimits(body=lines.encode()))
    with pytest.raises(CallRefused, match="limits of 1001 groups: 1000 are kept; remove some"):
        broker.ask(SetColdReadLimits(body=b"more=1\ng0=7"))
    broker.ask(SetColdReadLimits(body=b"g0=8"))
    kept = read_limits(broker).config_table
    assert (len(kept), kept["g0"]) == (handlers.GROUPS_MAX, 8)


async def test_limits_of_the_settings_are_listed(broker: LocalBroker) -> None:
    assert read_limits(broker).cg_cold_read_threshold == 3 * 1024 * 1024
    broker.ask(UpdateSettings(body=b"globalColdReadThreshold=7"))
    assert read_limits(broker).global_cold_read_threshold == 7


@pytest.mark.parametrize(
    "body",
    [b"g=abc", b"g=", b"g=1e5", b"g=" + b"9" * 30, "g=\u0661".encode(), b"a b!=1", b"\xff=1"],
)
async def test_malformed_limits_are_refused(broker: LocalBroker, body: bytes) -> None:
    with refuses(ResponseCode.INVALID_PARAMETER):
        broker.ask(SetColdReadLimits(body=b"ok=1\n" + body))
    assert read_limits(broker).config_table == {}


async def test_read_ahead_modes_are_taken_or_refused_like_by_apaches(broker: LocalBroker) -> None:
    for mode in ("0", "1"):
        reply = broker.ask(SetReadAhead(read_ahead_mode=mode))
        assert f"success, mode: {mode}, without effect" in (reply.remark or "")
    for mode, code in (("7", 29), ("-1", 29), ("x", 1), ("", 1)):
        with refuses(code):
            broker.ask(SetReadAhead(read_ahead_mode=mode))
