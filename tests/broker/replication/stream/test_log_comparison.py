"""A replica looks whether its log is its master's before it goes on with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.broker.replication.conftest import MakeParts, ReplicationParts
from tests.broker.replication.fake_master import FakeMaster

from roquet.broker.replication.stream.log_comparison import LogComparison
from roquet.broker.replication.stream.stream_facts import LogDiverged, StreamError
from roquet.model.errors import CallRefused
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.query import ViewMessage
from roquet.wire.codes import ResponseCode

REPLICA: dict[str, Any] = {
    "broker_role": BrokerRole.SLAVE,
    "broker_id": 1,
    "broker_name": "broker-a",
    "cluster_name": "DefaultCluster",
}
STREAM = "127.0.0.1:20001"


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


def test_a_log_whose_last_record_the_master_has_is_a_part_of_its_log(parts: MakeParts) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(**REPLICA)
        made.append(5)
        master, (position, record) = FakeMaster(made.clock), last_of(made)
        master.records[position] = record
        async with compared(made, master) as comparison:
            await comparison.check(STREAM)
        assert [call.offset for call in master.asked if isinstance(call, ViewMessage)] == [position]

    run()


@pytest.mark.parametrize(
    ("there", "why"), [(None, "is none at"), (b"of another past", "is another one at")]
)
def test_a_master_with_another_record_or_none_has_another_past(
    there: bytes | None, why: str, parts: MakeParts
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(**REPLICA)
        made.append(5)
        master = FakeMaster(made.clock)
        if there is not None:
            master.records[last_of(made)[0]] = there
        async with compared(made, master) as comparison:
            with pytest.raises(LogDiverged, match=f"{why}.*start this replica in an empty"):
                await comparison.check(STREAM)

    run()


def test_an_empty_log_is_a_part_of_every_log_of_its_group(parts: MakeParts) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(**REPLICA)
        master = FakeMaster(made.clock)
        async with compared(made, master) as comparison:
            await comparison.check(STREAM)
            assert master.count(ViewMessage) == 0
            master.settings = master.settings.replace("DefaultCluster", "Other")
            with pytest.raises(StreamError, match="broker-a of cluster Other, this is broker-a of"):
                await comparison.check(STREAM)

    run()


@pytest.mark.parametrize("kind", [GetSettings, ViewMessage])
def test_a_master_that_shows_its_records_to_nobody_is_followed_with_a_warning(
    kind: Any, parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def run() -> None:
        def refuse(_call: object) -> Any:
            raise CallRefused(ResponseCode.NO_PERMISSION, "sign your requests")

        made = parts(**REPLICA)
        made.append()
        master = FakeMaster(made.clock)
        master.answers[kind] = refuse
        async with compared(made, master) as comparison:
            await comparison.check(STREAM)
            await comparison.check(STREAM)
        assert caplog.text.count("sign your requests") == 1

    run()


@pytest.mark.parametrize(
    "refusal",
    [CallRefused(ResponseCode.SYSTEM_BUSY, "busy"), CallRefused(ResponseCode.SYSTEM_ERROR, "oops")],
)
def test_a_master_that_cannot_answer_now_is_not_followed_yet(
    refusal: CallRefused, parts: MakeParts
) -> None:
    @in_virtual_time
    async def run() -> None:
        def refuse(_call: object) -> Any:
            raise refusal

        made = parts(**REPLICA)
        made.append()
        master = FakeMaster(made.clock)
        master.answers[ViewMessage] = refuse
        async with compared(made, master) as comparison:
            with pytest.raises(StreamError, match="cannot be compared with this one"):
                await comparison.check(STREAM)
        async with compared(made, None) as comparison:
            with pytest.raises(StreamError, match="cannot connect to"):
                await comparison.check(STREAM)

    run()


@pytest.mark.parametrize("settings", [{}, {"ha_master": STREAM}])
def test_without_news_of_name_servers_the_port_below_the_stream_is_asked(
    settings: dict[str, Any], parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(**REPLICA, **settings)
        made.append()
        async with compared(made, FakeMaster(made.clock), is_known=bool(settings)) as comparison:
            with pytest.raises(LogDiverged):
                await comparison.check(STREAM)
        async with compared(made, None, is_known=bool(settings)) as comparison:
            await comparison.check(STREAM)
        assert caplog.text.count("does not show its records") == 1

    run()
