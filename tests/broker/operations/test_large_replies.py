import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import LocalBroker, failing, not_none, refuses

from roquet.broker.handlers import HANDLERS
from roquet.broker.handlers.admin.stats import OFFSETS_COUNT
from roquet.broker.ingest.destination import QUEUES_MAX as QUEUES_ALLOWED
from roquet.broker.operations.large_replies import QUEUES_MAX, ROWS_MAX, page
from roquet.model.errors import CallRefused, FieldError
from roquet.model.topic import DataVersion, GroupTable, TopicConfig, TopicTable
from roquet.store.store import Store
from roquet.wire.call import Call
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.admin.inspection import GetAllOffsets
from roquet.wire.calls.admin.stats import (
    GetAllConsumeStats,
    GetCorrections,
    GetTimeSpan,
    GetTopicStats,
)
from roquet.wire.calls.admin.topic import GetGroups, GetTopics
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

VERSION = DataVersion(timestamp=7, counter=2)
SEEN = codec.dumps(VERSION).decode()
TABLE = {"c": 3, "a": 1, "b": 2}


def asked(first: int | None, most: int | None, seen: str | None = SEEN) -> dict[str, int]:
    return page(TABLE, VERSION, first=first, most=most, seen_version=seen)


def test_a_request_without_a_page_gets_the_whole_table() -> None:
    assert asked(None, None, None) == TABLE
    assert asked(2, None, None) == TABLE


def test_pages_follow_each_other_by_name() -> None:
    assert list(asked(0, 2)) == ["a", "b"]
    assert list(asked(2, 2)) == ["c"]
    assert list(asked(1, None)) == ["b", "c"]
    assert asked(3, 2) == asked(99, 2) == {}


def test_pages_of_a_changed_table_begin_again() -> None:
    other = codec.dumps(DataVersion(counter=9)).decode()
    for seen in (None, "", other):  # mqadmin begins with an empty text
        assert list(asked(2, 2, seen)) == ["a", "b"]


@pytest.mark.parametrize(("first", "most"), [(-1, 2), (0, 0), (0, -3)])
def test_a_page_that_cannot_be_is_refused(first: int, most: int) -> None:
    with refuses(ResponseCode.SYSTEM_ERROR):
        asked(first, most)


def test_an_edition_that_is_no_json_is_refused() -> None:
    with pytest.raises(FieldError):
        asked(0, 2, "{")


async def test_topics_come_in_pages_with_their_number(broker: LocalBroker) -> None:
    whole = broker.ask(GetTopics())
    table = codec.loads(whole.body, TopicTable)
    assert whole.total_topic_num == len(table.topic_config_table)
    seen = codec.dumps(table.data_version).decode()
    names: list[str] = []
    while len(names) < whole.total_topic_num:
        some = broker.ask(GetTopics(topic_seq=len(names), max_topic_num=5, data_version=seen))
        assert some.total_topic_num == whole.total_topic_num
        names += codec.loads(some.body, TopicTable).topic_config_table
    assert names == sorted(table.topic_config_table)


async def test_groups_come_in_pages_with_their_number(broker: LocalBroker) -> None:
    reply = broker.ask(GetGroups(group_seq=0, max_group_num=3))
    assert reply.total_group_num == 8
    assert list(codec.loads(reply.body, GroupTable).subscription_group_table) == [
        "CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION",
    ]  # fmt: skip


async def test_other_tasks_run_while_a_long_table_is_encoded(broker: LocalBroker) -> None:
    topics = [TopicConfig(topic_name=f"topic-{n}") for n in range(ROWS_MAX + 1)]
    broker.tables.topics.put_all(topics, 0)
    answer = broker.ask(GetTopics())
    reply = await answer
    assert b'"topic-200"' in reply.body
    assert reply.total_topic_num > ROWS_MAX


@pytest.fixture
def wide(broker: LocalBroker) -> LocalBroker:
    """A topic of as many queues as are allowed, and a group with progress in each."""
    count = QUEUES_ALLOWED
    broker.put_topic("wide", count)
    broker.tables.groups.find("billing", 0)
    for number in range(count):
        broker.tables.offsets.commit("billing", "wide", number, 0)
    return broker


@pytest.mark.parametrize(
    "call",
    [
        GetTopicStats(topic="wide"),
        GetTimeSpan(topic="wide", group="billing"),
        GetCorrections(topic="wide", compare_group=""),
        GetConsumeStats(consumer_group="billing", with_owners=True),
        GetAllConsumeStats(),
        GetAllOffsets(),
    ],
    ids=lambda call: type(call).__name__,
)
async def test_other_tasks_run_while_many_queues_are_read(
    wide: LocalBroker, call: Call[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [0]
    bounds = Store.bounds

    def counted(store: Store, topic: str, queue_id: int) -> tuple[int, int]:
        looks[-1] += 1
        return bounds(store, topic, queue_id)

    async def others() -> None:
        while True:
            looks.append(0)
            await asyncio.sleep(0)

    monkeypatch.setattr(Store, "bounds", counted)
    turns = asyncio.create_task(others())
    answer: Any = wide.bind(HANDLERS[type(call)])(call, wide.peer)
    reply = await answer
    turns.cancel()
    assert max(looks) <= 2 * OFFSETS_COUNT
    # Progress is copied by topic and group, without a look at queues.
    is_copied = isinstance(call, GetAllOffsets)
    assert len(looks) > (1 if is_copied else QUEUES_ALLOWED // OFFSETS_COUNT)
    assert len(reply.body) > QUEUES_ALLOWED


async def test_more_queues_than_fit_in_a_reply_are_refused_before_any_is_read(
    wide: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"wide{number}" for number in range(QUEUES_MAX // QUEUES_ALLOWED + 1)]
    config = not_none(wide.tables.topics.get("wide"))
    wide.tables.topics.put_all(
        [msgspec.structs.replace(config, topic_name=name) for name in names], 0
    )
    monkeypatch.setattr(Store, "bounds", failing(AssertionError("looked at a queue")))
    with pytest.raises(CallRefused, match="ask for fewer topics"):
        wide.ask(GetConsumeStats(consumer_group="billing", topic_list=";".join(names)))


async def test_a_topic_named_several_times_is_read_once(wide: LocalBroker) -> None:
    wide.put_topic("orders", 1)
    call = GetConsumeStats(consumer_group="billing", topic_list="orders;" * 6_000)
    assert wide.ask(call).body.count(b'"brokerOffset"') == 1
