"""A replica looks whether its log is its master's before it goes on with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.replication.conftest import MakeParts, ReplicationParts
from tests.broker.replication.fake_master import FakeMaster

from roquet.broker.replication.stream.framing import LogDiverged, StreamError
from roquet.broker.replication.stream.log_comparison import MISSES_MAX, LogComparison
from roquet.model.errors import CallRefused
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.query import ViewMessage
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

REPLICA: dict[str, Any] = {
    "broker_role": BrokerRole.SLAVE,
    "broker_id": 1,
    "broker_name": "broker-a",
    "cluster_name": "DefaultCluster",
}
STREAM = "127.0.0.1:20001"

PROMOTE = "to keep this one, promote this replica"

ELECTED: dict[str, Any] = {
    "broker_name": "broker-a",
    "cluster_name": "DefaultCluster",
    "controller_mode": True,
    "controllers": ("127.0.0.1:9878",),
    "store_dir": Path("/data"),
}


@asynccontextmanager
async def compared(
    made: ReplicationParts, master: FakeMaster | None, *, is_known: bool = True
) -> AsyncIterator[LogComparison]:
    """The comparison of a replica, whose master's address name servers have told or not."""
    if is_known:
        role = msgspec.structs.replace(made.role.current, master="127.0.0.1:20000")
        made.role.change(role)
    async with ChannelPool(clock=made.clock) as pool:
        comparison = LogComparison(made.store, made.settings, made.role, pool)
        if master is None:
            yield comparison
            return
        async with master.server:
            yield comparison


def last_of(made: ReplicationParts) -> tuple[int, bytes]:
    found = made.store.raw.last_record()
    assert found is not None
    return found


async def test_a_log_whose_last_record_the_master_has_is_a_part_of_its_log(
    parts: MakeParts,
) -> None:
    made = parts(**REPLICA)
    made.append(5)
    master, (position, record) = FakeMaster(made.clock), last_of(made)
    master.records[position] = record
    async with compared(made, master) as comparison:
        await comparison.check(STREAM, made.store.raw.end)
    asked = [call for call in master.asked if isinstance(call, ViewMessage)]
    assert [call.offset for call in asked] == [position]
    assert asked[0].unconfirmed, "the master may not have it on its disk yet"


async def test_another_record_at_the_master_is_of_another_past(parts: MakeParts) -> None:
    made = parts(**REPLICA)
    made.append(5)
    master = FakeMaster(made.clock)
    master.records[last_of(made)[0]] = b"of another past"
    async with compared(made, master) as comparison:
        with pytest.raises(LogDiverged, match=f"is another one at.*{PROMOTE}"):
            await comparison.check(STREAM, made.store.raw.end)


@pytest.mark.parametrize(
    ("begins_after", "ends_after", "why"),
    [
        (1, 1_000, "has deleted what is between; start this replica in an empty directory"),
        (-1_000, -1, f"ends at .* already.*{PROMOTE}"),
        (-1_000, 1_000, f"is none at .*, or damaged there.*{PROMOTE}"),
    ],
)
async def test_why_the_master_lacks_the_last_record_decides_what_an_operator_is_told(
    begins_after: int, ends_after: int, why: str, parts: MakeParts
) -> None:
    made = parts(**REPLICA)
    made.append(5)
    master, position = FakeMaster(made.clock), last_of(made)[0]
    master.log_begin, master.log_end = position + begins_after, position + ends_after
    async with compared(made, master) as comparison:
        with pytest.raises(LogDiverged, match=why) as raised:
            await comparison.check(STREAM, made.store.raw.end)
    assert ("promote" in str(raised.value)) is (begins_after < 0)


async def test_a_log_that_ends_where_the_masters_begins_is_followed(parts: MakeParts) -> None:
    made = parts(**REPLICA)
    made.append(5)
    master = FakeMaster(made.clock)
    master.log_begin, master.log_end = made.store.raw.end, made.store.raw.end + 1_000
    async with compared(made, master) as comparison:
        await comparison.check(STREAM, made.store.raw.end)


@pytest.mark.parametrize("body", [b"{}", CallRefused(ResponseCode.NO_PERMISSION, "sign")])
async def test_a_master_that_lacks_the_record_and_says_not_why_is_not_followed(
    body: bytes | CallRefused, parts: MakeParts
) -> None:
    def answer(_call: object) -> Reply:
        if isinstance(body, CallRefused):
            raise body
        return Reply(body=body)

    made = parts(**REPLICA)
    made.append()
    master = FakeMaster(made.clock)
    master.answers[GetRuntimeInfo] = answer
    async with compared(made, master) as comparison:
        with pytest.raises(StreamError, match="it lacks the last record here"):
            await comparison.check(STREAM, made.store.raw.end)


async def test_an_empty_log_is_a_part_of_every_log_of_its_group(parts: MakeParts) -> None:
    made = parts(**REPLICA)
    master = FakeMaster(made.clock)
    async with compared(made, master) as comparison:
        await comparison.check(STREAM, made.store.raw.end)
        assert master.count(ViewMessage) == 0
        master.settings = master.settings.replace("DefaultCluster", "Other")
        with pytest.raises(StreamError, match="broker-a of cluster Other, this is broker-a of"):
            await comparison.check(STREAM, made.store.raw.end)


@pytest.mark.parametrize("kind", [GetSettings, ViewMessage])
async def test_a_master_that_shows_its_records_to_nobody_is_followed_with_a_warning(
    kind: Any, parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_call: object) -> Any:
        raise CallRefused(ResponseCode.NO_PERMISSION, "sign your requests")

    made = parts(**REPLICA)
    made.append()
    master = FakeMaster(made.clock)
    master.answers[kind] = refuse
    async with compared(made, master) as comparison:
        await comparison.check(STREAM, made.store.raw.end)
        await comparison.check(STREAM, made.store.raw.end)
    assert caplog.text.count("sign your requests") == 1


@pytest.mark.parametrize(
    "refusal",
    [CallRefused(ResponseCode.SYSTEM_BUSY, "busy"), CallRefused(ResponseCode.SYSTEM_ERROR, "oops")],
)
async def test_a_master_that_cannot_answer_now_is_not_followed_yet(
    refusal: CallRefused, parts: MakeParts
) -> None:
    def refuse(_call: object) -> Any:
        raise refusal

    made = parts(**REPLICA)
    made.append()
    master = FakeMaster(made.clock)
    master.answers[ViewMessage] = refuse
    async with compared(made, master) as comparison:
        with pytest.raises(StreamError, match="cannot be compared with this one"):
            await comparison.check(STREAM, made.store.raw.end)
    async with compared(made, None) as comparison:
        with pytest.raises(StreamError, match="cannot connect to"):
            await comparison.check(STREAM, made.store.raw.end)


async def test_without_news_of_name_servers_no_address_is_guessed_unless_the_master_is_set(
    parts: MakeParts,
) -> None:
    made = parts(**REPLICA)
    made.append()
    for master in (FakeMaster(made.clock), None):
        async with compared(made, master, is_known=False) as comparison:
            for _ in range(2 * MISSES_MAX):
                with pytest.raises(StreamError, match="before a name server has told"):
                    await comparison.check(STREAM, made.store.raw.end)


async def missed(comparison: LogComparison, count: int) -> None:
    """Look several times, each without a master."""
    for _ in range(count):
        with pytest.raises(StreamError, match="cannot be compared"):
            await comparison.check(STREAM, 1_000)
        await this_loop().clock.sleep(5_000)


async def test_a_guessed_port_is_given_up_once_nobody_has_listened_there_for_long(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(**REPLICA, ha_master=STREAM)
    made.append()
    async with compared(made, None, is_known=False) as comparison:
        await missed(comparison, MISSES_MAX - 1)
        assert caplog.text == ""
        await comparison.check(STREAM, made.store.raw.end)
        assert caplog.text.count("records cannot be read") == 1
        await missed(comparison, MISSES_MAX - 1)
        async with FakeMaster(made.clock).server:
            with pytest.raises(LogDiverged):
                await comparison.check(STREAM, made.store.raw.end)
        await missed(comparison, MISSES_MAX - 1)


async def test_an_empty_log_waits_for_nobody_at_a_guessed_port(parts: MakeParts) -> None:
    made = parts(**REPLICA, ha_master=STREAM)
    async with compared(made, None, is_known=False) as comparison:
        await comparison.check(STREAM, made.store.raw.end)
    async with compared(made, None) as comparison:
        await missed(comparison, 1)


async def test_a_timeout_does_not_say_that_nobody_is_at_a_guessed_port(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(**REPLICA, ha_master=STREAM)
    made.append()
    this_loop().network.delay(10_000, 10_000)
    async with compared(made, FakeMaster(made.clock), is_known=False) as comparison:
        await missed(comparison, 2 * MISSES_MAX)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("what", "other"),
    [("brokerName=broker-a", "brokerName=broker-b"), ("brokerId=0", "brokerId=2")],
)
async def test_another_broker_at_a_guessed_port_says_nothing_of_the_master(
    what: str, other: str, parts: MakeParts
) -> None:
    made = parts(**REPLICA, ha_master=STREAM)
    made.append()
    stranger = FakeMaster(made.clock)
    stranger.settings = stranger.settings.replace(what, other)
    async with compared(made, stranger, is_known=False) as comparison:
        await missed(comparison, MISSES_MAX - 1)
        await comparison.check(STREAM, made.store.raw.end)
    stranger = FakeMaster(made.clock)
    stranger.settings = stranger.settings.replace(what, other)
    async with compared(made, stranger) as comparison:  # name servers have told it
        await missed(comparison, 2 * MISSES_MAX)


@pytest.mark.parametrize("port", ["0", "20001"])
@pytest.mark.parametrize("has_log", [True, False])
async def test_a_guess_is_right_where_the_stream_is_of_the_broker_that_answers(
    port: str, has_log: bool, parts: MakeParts
) -> None:
    made = parts(**REPLICA, ha_master=STREAM)
    if has_log:
        made.append()
    stranger = FakeMaster(made.clock)
    stranger.settings = stranger.settings.replace("broker-a", "broker-b")
    stranger.settings += f"haListenPort={port}\n"
    async with compared(made, stranger, is_known=False) as comparison:
        await missed(comparison, 2 * MISSES_MAX)


async def test_the_address_that_name_servers_tell_is_asked_before_a_guessed_one(
    parts: MakeParts,
) -> None:
    made = parts(**REPLICA, ha_master="127.0.0.1:30001")
    made.append()
    master, (position, record) = FakeMaster(made.clock), last_of(made)
    master.records[position] = record
    async with compared(made, master) as comparison:
        await comparison.check("127.0.0.1:30001", made.store.raw.end)
    assert master.count(ViewMessage) == 1


async def test_with_epochs_the_last_record_in_front_of_the_consistent_point_is_compared(
    parts: MakeParts,
) -> None:
    made = parts(**ELECTED)
    made.role.change(msgspec.structs.replace(made.role.current, broker_id=2))
    made.append(3)
    (position, record), point = last_of(made), made.store.raw.end
    made.append(2)
    master = FakeMaster(made.clock)
    master.records[position] = record
    async with compared(made, master) as comparison:
        await comparison.check(STREAM, point)
        (call,) = [one for one in master.asked if isinstance(one, ViewMessage)]
        assert (call.offset, call.unconfirmed) == (position, True)
        await comparison.check(STREAM, 0)
        assert master.count(ViewMessage) == 1, "there is nothing in common to be compared"
        master.records[position] = b"of another past"
        with pytest.raises(LogDiverged, match=r"epochs are equal.*in an empty directory"):
            await comparison.check(STREAM, point)
        del master.records[position]
        master.log_end = 1_000
        with pytest.raises(LogDiverged, match=r"none at .*, or not yet confirmed by a broker"):
            await comparison.check(STREAM, point)
