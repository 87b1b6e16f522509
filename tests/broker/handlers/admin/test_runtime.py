import json
from pathlib import Path

import pytest
from tests.broker.conftest import LocalBroker, make_send

from roquet import __version__
from roquet.broker.handlers.admin import runtime as handlers
from roquet.broker.ingest.set_aside import RecordLocation
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.codes import VERSION

CODES = Path(__file__).parents[3] / "vectors" / "codes.jsonl"

GENUINE = {
    "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "bootTimestamp",
    "brokerActive", "brokerVersionDesc", "commitLogDirCapacity", "commitLogDiskRatio",
    "commitLogDiskRatio_memory", "commitLogMaxOffset", "commitLogMinOffset",
    "consumeQueueDiskRatio", "dispatchBehindBytes", "dispatchMaxBuffer",
    "earliestMessageTimeStamp", "getFoundTps", "getMessageEntireTimeMax", "getMissTps",
    "getTotalTps", "getTransferredTps", "msgGetTotalTodayMorning", "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning", "pageCacheLockTimeMills", "putLatency99", "putLatency999",
    "putMessageAverageSize", "putMessageDistributeTime", "putMessageEntireTimeMax",
    "putMessageFailedTimes", "putMessageSizeTotal", "putMessageTimesTotal", "putTps",
    "remainHowManyDataToFlush", "remainTransientStoreBufferNumbs", "runtime",
    "startAcceptSendRequestTimeStamp", "timerCongestNum", "timerDequeueTps", "timerEnqueueTps",
    "timerOffsetBehind", "timerReadBehind",
    *(
        f"{pool}ThreadPoolQueue{what}"
        for pool in ("ack", "litePull", "pull", "query", "send")
        for what in ("Capacity", "HeadWaitTimeMills", "Size")
    ),
}  # fmt: skip
"""The keys of a genuine broker that has just begun, but for the directory in one of them."""


async def info(broker: LocalBroker) -> dict[str, str]:
    reply = await broker.ask(GetRuntimeInfo())
    table: dict[str, str] = json.loads(reply.body)["table"]
    return table


async def test_a_new_broker_reports_the_fields_of_apaches_broker(broker: LocalBroker) -> None:
    table = await info(broker)
    assert table.keys() == GENUINE | {"roquetVersion", "commitLogConfirmedOffset"}
    assert table["roquetVersion"] == __version__
    assert all(isinstance(value, str) for value in table.values())
    assert table["earliestMessageTimeStamp"] == "-1"
    assert table["putTps"] == "0.0 0.0 0.0"
    assert table["putMessageAverageSize"] == "0.0"


def test_our_version_has_apaches_name() -> None:
    lines = [json.loads(line) for line in CODES.read_text("ascii").splitlines()]
    (current,) = (x["out"] for x in lines if x["in"]["kind"] == "current_version")
    assert current == {"ordinal": VERSION, "name": handlers.VERSION_NAME}


async def test_stored_and_delivered_messages_are_counted(broker: LocalBroker) -> None:
    broker.put_topic("orders")
    for _ in range(20):
        broker.log.ingest.append(make_send(), 0, broker.peer)
    broker.control.statistics.got("orders", "billing", 5, 500)
    broker.control.statistics.missed()
    await broker.control.sampler.step(broker.control.statistics.boot_ms + 10_000)
    table = await info(broker)
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("20", "5")
    assert table["putMessageTimesTotal"] == "20"
    assert table["putMessageSizeTotal"] == table["commitLogMaxOffset"]
    assert table["putTps"] == "2.0 2.0 0.0"
    assert table["getTransferredTps"] == "0.5 0.5 0.0"
    assert table["getTotalTps"] == "0.2 0.2 0.0", "pulls that found something, and that did not"
    assert int(table["earliestMessageTimeStamp"]) > 1_600_000_000_000
    assert table["remainHowManyDataToFlush"] != "0 B"


async def test_waiting_requests_are_counted_by_kind(broker: LocalBroker) -> None:
    gates = broker.control.admission.gates
    gates["send"].enter(broker.peer, 100)
    gates["send"].late(7)
    gates["pull"].enter(broker.peer, 100)
    table = await info(broker)
    assert table["sendThreadPoolQueueSize"] == "1"
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "7"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["pullThreadPoolQueueSize"] == "0", "it waits for messages, not for the broker"


async def test_a_slow_request_is_reported(broker: LocalBroker) -> None:
    broker.control.slow_requests.pause_ms(34, 700, "10.0.0.1:7", 80)
    table = await info(broker)
    assert table["slowRequestCount"] == "1"
    assert table["slowRequestLongestMillis"] == "80"
    assert table["slowRequestLatest"] == "code 34 of 10.0.0.1:7, body of 700 bytes, 80 ms"


async def test_delay_levels_are_listed_once_they_are_used(broker: LocalBroker) -> None:
    broker.put_topic("orders")
    broker.log.ingest.append(make_send(properties="DELAY\x013\x02"), 0, broker.peer)
    broker.tables.delay_offsets.advance(3, 1)
    assert (await info(broker))["scheduleMessageOffset_3"] == "1,1"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2350, "2.3 KiB"),
        (252 * 1024**3, "252.0 GiB"), (2**63, "8.0 EiB"),
    ],
)  # fmt: skip
def test_sizes_are_written_as_people_read_them(count: int, text: str) -> None:
    assert handlers.sized(count) == text


def test_a_time_that_has_passed_is_written_in_its_parts() -> None:
    assert handlers.lasted(90_061_999) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


async def test_set_aside_messages_are_counted(broker: LocalBroker) -> None:
    for _ in range(2):
        broker.delivery.set_aside.keep("timer", RecordLocation("t", 0, 0, 10**6), ValueError("odd"))
    table = await info(broker)
    assert (table["setAsideTotal"], table["setAside_timer"]) == ("2", "2")
