from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.replication.fake_master import FakeMaster

from roquet.broker.replication.master_tables import (
    BODY_BYTES_MAX,
    PAGE_ROWS,
    RESTARTS_MAX,
    MasterIdentity,
    MasterTables,
)
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.broker.tables.request_modes import RequestModeTable
from roquet.model.errors import CallError, FieldError
from roquet.model.topic import DataVersion, GroupTable, SubscriptionGroup, TopicConfig
from roquet.net.pool import ChannelPool
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.store.timer.layout import TimerCheckpoint
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.admin.inspection import AllOffsets, GetAllOffsets, GetRequestModes
from roquet.wire.calls.admin.settings import GetSettings, SettingsReply
from roquet.wire.calls.admin.stats import GetHaStatus, HaClient, HaStatus
from roquet.wire.calls.admin.topic import GetGroups, GetTopics, GroupsReply, TopicsReply
from roquet.wire.calls.bodies import RequestMode, TopicsOfBroker
from roquet.wire.calls.timer import GetTimerCheckpoint, GetTimerMetrics
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time

VERSION = DataVersion(counter=1)
NAMES = [f"t{number:05}" for number in range(2_500)]


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[FakeMaster, MasterTables]]:
    master = FakeMaster(this_loop().clock)
    async with master.server, ChannelPool(clock=this_loop().clock) as pool:
        yield master, MasterTables(pool, master.address)


def topics_page(names: list[str], total: int | None, version: DataVersion = VERSION) -> TopicsReply:
    body = TopicsOfBroker(
        topic_config_table={name: TopicConfig(topic_name=name) for name in names},
        data_version=version,
    )
    return TopicsReply(total_topic_num=total, body=codec.dumps(body))


def paged(call: GetTopics) -> TopicsReply:
    """A page as it is asked for."""
    first = call.topic_seq or 0
    return topics_page(NAMES[first : first + (call.max_topic_num or 0)], len(NAMES))


async def test_pages_of_topics_are_joined_and_their_version_is_said_again() -> None:
    async with asking() as (master, tables):
        master.answers[GetTopics] = paged
        found = await tables.topics(0)
        assert sorted(found.configs) == NAMES
        assert (found.version, found.ids, found.deleted) == (VERSION, None, None)
        asked = [call for call in master.asked if isinstance(call, GetTopics)]
        assert [(c.topic_seq, c.max_topic_num) for c in asked] == [
            (first, PAGE_ROWS) for first in (0, 1_000, 2_000)
        ]
        assert asked[0].data_version is None
        assert codec.loads(asked[1].data_version or "", DataVersion) == VERSION


async def test_a_table_that_changes_between_pages_is_read_from_the_first_again() -> None:
    async with asking() as (master, tables):

        def answer(call: GetTopics) -> TopicsReply:
            second = VERSION.next(5)
            if master.count(GetTopics) == 2:
                return topics_page(NAMES[:1], 1, second)
            if master.count(GetTopics) > 2:
                return topics_page(NAMES[:1], 1, second)
            return paged(call)

        master.answers[GetTopics] = answer
        assert list((await tables.topics(0)).configs) == NAMES[:1]


async def test_a_table_that_changes_all_the_time_is_left_for_later() -> None:
    async with asking() as (master, tables):
        master.answers[GetTopics] = lambda call: topics_page(
            NAMES[:1], 2, DataVersion(counter=master.count(GetTopics))
        )
        with pytest.raises(FieldError, match=f"changed {RESTARTS_MAX} times"):
            await tables.topics(0)


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        (topics_page([], 3), "a table of 3 rows ends after 1"),
        (topics_page(NAMES[:1], 3), "pages of one version of a table disagree"),
        (topics_page(NAMES[1:2], 4), "pages of one version of a table disagree"),
        (topics_page(NAMES[1:9], 3), "a table of 3 rows has 9"),
    ],
)
async def test_pages_that_do_not_add_up_are_refused(second: TopicsReply, fault: str) -> None:
    async with asking() as (master, tables):
        master.answers[GetTopics] = lambda call: (
            second if call.topic_seq else topics_page(NAMES[:1], 3)
        )
        with pytest.raises(FieldError, match=fault):
            await tables.topics(0)


def test_pages_that_never_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.broker.replication.master_tables.ROWS_MAX", 4_000)

    @in_virtual_time
    async def check() -> None:
        async with asking() as (master, tables):

            def endless(call: GetTopics) -> TopicsReply:
                first = call.topic_seq or 0
                return topics_page([f"t{first + n}" for n in range(PAGE_ROWS)], 2**31 - 1)

            master.answers[GetTopics] = endless
            with pytest.raises(FieldError, match="more than 4000 rows"):
                await tables.topics(0)
            assert master.count(GetTopics) == 5

    check()


async def test_an_old_broker_gives_everything_in_one_page_without_a_number() -> None:
    async with asking() as (master, tables):
        master.answers[GetTopics] = lambda _: topics_page(NAMES, None)
        assert len((await tables.topics(0)).configs) == len(NAMES)
        assert master.count(GetTopics) == 1


async def test_ids_and_tombstones_come_with_the_topics() -> None:
    async with asking() as (master, tables):
        master.has_topics("a", "b", topic_ids={"a": "1-1"}, deleted_topics={"a": 7, "x": 12})
        master.log_end = 10
        found = await tables.topics(5)
        assert found.ids == {"a": "1-1"}
        assert found.deleted == {"a": 7}, "the log cannot have reached the other position"
        assert master.count(GetHaStatus) == 1


async def test_groups_come_in_pages_too_and_only_legal_ones_count() -> None:
    async with asking() as (master, tables):

        def answer(call: GetGroups) -> GroupsReply:
            name = ["g", "bad name"][call.group_seq or 0]
            body = GroupTable(
                subscription_group_table={name: SubscriptionGroup()},
                forbidden_table={name: {"orders": 4}},
                data_version=VERSION,
            )
            return GroupsReply(total_group_num=2, body=codec.dumps(body))

        master.answers[GetGroups] = answer
        found = await tables.groups()
        assert found == GroupTable(
            subscription_group_table={"g": SubscriptionGroup(group_name="g")},
            forbidden_table={"g": {"orders": 4}},
            data_version=VERSION,
        )


async def test_the_fast_port_is_asked_until_it_is_refused() -> None:
    async with asking() as (master, tables):
        fast = FakeMaster(this_loop().clock, port=19_998)
        async with fast.server:
            await tables.topics(0)
            await tables.timer_checkpoint()
            await tables.timer_metrics()
            await tables.groups()
        assert [type(call) for call in fast.asked] == [
            GetTopics,
            GetTimerCheckpoint,
            GetTimerMetrics,
        ]
        assert [type(call) for call in master.asked] == [GetGroups]


async def test_the_plain_port_is_asked_where_the_fast_one_is_refused() -> None:
    async with asking() as (master, tables):
        await tables.topics(0)
        await tables.timer_checkpoint()
        assert [type(call) for call in master.asked] == [GetTopics, GetTimerCheckpoint]


async def test_an_unknown_broker_does_not_say_where_its_log_ended_beside_the_progress() -> None:
    async with asking() as (master, tables):
        master.offsets = AllOffsets(offset_table={"orders@g": {0: 3}}, data_version=VERSION)
        found = await tables.offsets(None, 0)
        assert (found.rows, found.log_end, found.editions) == ({"orders@g": {0: 3}}, None, None)


async def test_delay_offsets_and_request_modes_are_read_and_checked() -> None:
    async with asking() as (master, tables):
        master.delay_offsets = DelayOffsetTable(offset_table={0: 1, 3: 120, 4: -1})
        assert (await tables.delay_offsets()).offset_table == {3: 120}
        modes = {
            "orders": {"g": RequestMode(mode="POP"), "h": RequestMode(mode="?")},
            "bad/name": {"g": RequestMode()},
        }
        master.answers[GetRequestModes] = lambda _: Reply(
            body=codec.dumps(RequestModeTable(message_request_mode_map=modes))
        )
        found = (await tables.request_modes()).message_request_mode_map
        assert found == {"orders": {"g": RequestMode(mode="POP")}}


async def test_the_progress_of_the_timer_is_read_from_its_bytes() -> None:
    async with asking() as (master, tables):
        master.timer = TimerCheckpoint(read_ms=5_000, master_offset=7)
        assert await tables.timer_checkpoint() == master.timer
        for body in (b"", bytes(55), b"\xff" * 56):
            reply = Reply(body=body)
            master.answers[GetTimerCheckpoint] = lambda _: reply  # noqa: B023 - called at once
            with pytest.raises(FieldError, match="no checkpoint of a timer"):
                await tables.timer_checkpoint()


async def test_a_broker_says_who_it_is() -> None:
    async with asking() as (master, tables):
        assert await tables.identity() == MasterIdentity("DefaultCluster", "broker-a", 0)
        for text in ("brokerName=broker-a", "brokerClusterName=c\nbrokerName=b\nbrokerId=x"):
            master.settings = text
            with pytest.raises(FieldError, match="does not say which broker it is"):
                await tables.identity()
        master.answers[GetSettings] = lambda _: SettingsReply(version="{}", body=b"\xff" * 9)
        with pytest.raises(FieldError, match="does not say which broker it is"):
            await tables.identity()


@pytest.mark.parametrize(
    ("call", "reply", "method"),
    [
        (GetTopics, TopicsReply(body=b"[1,2]"), "topics"),
        (GetTopics, TopicsReply(body=b'{"topicConfigTable":{"t":7}}'), "topics"),
        (GetGroups, GroupsReply(body=b'{"subscriptionGroupTable":"none"}'), "groups"),
        (GetAllOffsets, Reply(body=b'{"offsetTable":{"t@g":[1]}}'), "offsets"),
        (GetAllOffsets, Reply(body=b"[" * 300_000), "offsets"),
        (GetTimerMetrics, Reply(body=b"\xff\xfe"), "timer_metrics"),
        (GetHaStatus, Reply(body=b'{"masterCommitLogMaxOffset":-3}'), "log_end"),
        (GetRequestModes, Reply(code=1, remark="not now"), "request_modes"),
    ],
)
async def test_answers_of_the_wrong_type_are_refused(
    call: type[Any], reply: Reply, method: str
) -> None:
    async with asking() as (master, tables):
        master.answers[call] = lambda _: reply
        arguments: dict[str, tuple[Any, ...]] = {"topics": (0,), "offsets": (None, 0)}
        with pytest.raises((FieldError, CallError)):
            await getattr(tables, method)(*arguments.get(method, ()))


async def test_an_answer_of_a_hundred_megabytes_is_refused_before_it_is_decoded() -> None:
    async with asking() as (master, tables):
        size = 100 * 1024 * 1024
        master.answers[GetTimerMetrics] = lambda _: Reply(body=b"[" * size)
        with pytest.raises(CallError):
            await tables.timer_metrics()
        master.answers[GetTimerMetrics] = lambda _: Reply(body=b" " * (BODY_BYTES_MAX - 4_096))
        with pytest.raises(FieldError):
            await tables.timer_metrics()


async def test_a_replica_says_where_its_log_ends_and_a_master_does_not() -> None:
    async with asking() as (master, tables):
        given = [
            HaStatus(ha_client_runtime_info=HaClient(max_offset=7)),
            HaStatus(master=True, master_commit_log_max_offset=7),
            HaStatus(ha_client_runtime_info=HaClient(max_offset=-1)),
        ]
        master.answers[GetHaStatus] = lambda _: Reply(body=codec.dumps(given.pop(0)))
        assert await tables.follower_end() == 7
        while given:
            with pytest.raises(FieldError, match="does not say where its log ends"):
                await tables.follower_end()


async def test_a_master_that_leads_no_more_does_not_say_where_its_log_ends() -> None:
    async with asking() as (master, tables):
        master.log_end = 7
        assert await tables.log_end() == 7
        master.answers[GetHaStatus] = lambda _: Reply(body=codec.dumps(HaStatus()))
        with pytest.raises(FieldError, match="is not the master now"):
            await tables.log_end()


async def test_another_server_at_the_fast_port_leaves_the_plain_one() -> None:
    clock = this_loop().clock
    stranger = Server(Router(), host="127.0.0.1", port=19_998, clock=clock)
    async with asking() as (master, tables), stranger:
        master.timer = TimerCheckpoint(read_ms=9)
        assert (await tables.timer_checkpoint()).read_ms == 9
        assert (await tables.timer_checkpoint()).read_ms == 9
