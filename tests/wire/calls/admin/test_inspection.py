"""Inspection of a broker, against texts of Apache's classes."""

from typing import Any

import pytest
from tests.vector_lines import vector_lines
from tests.wire.calls.conftest import agree

from roquet.model.errors import FieldError
from roquet.wire.calls.admin import inspection as calls
from roquet.wire.codes import Language
from roquet.wire.command import Command
from roquet.wire.fastjson import codec
from roquet.wire.fields import decode_call

LINES = vector_lines("bodies.jsonl")
KINDS: dict[str, Any] = {
    "ConsumeQueueData": calls.QueueEntry,
    "GroupList": calls.GroupList,
    "ProducerConnection": calls.ProducerConnection,
    "ProducerInfo": calls.ProducerInfo,
    "ProducerTableInfo": calls.ProducerTable,
    "QueryConsumeQueueResponseBody": calls.QueueEntries,
    "QuerySubscriptionResponseBody": calls.SubscriptionAnswer,
}


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("GetAllProducerInfoRequestHeader", calls.GetAllProducers),
        ("GetProducerConnectionListRequestHeader", calls.GetProducers),
        ("QueryConsumeQueueRequestHeader", calls.GetEntries),
        ("QuerySubscriptionByConsumerRequestHeader", calls.GetSubscription),
        ("QueryTopicConsumeByWhoRequestHeader", calls.GetGroupsOfTopic),
        ("QueryTopicsByConsumerRequestHeader", calls.GetTopicsOfGroup),
    ],
)
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)


@pytest.mark.parametrize(
    ("java", "text"),
    [(x["in"]["class"], x["out"]["text"]) for x in LINES if x["in"]["class"] in KINDS],
)
def test_bodies_are_read_and_written_to_the_byte(java: str, text: str) -> None:
    assert codec.dumps(codec.loads(text, KINDS[java])).decode() == text


def test_a_producer_is_told_as_the_genuine_broker_tells_it() -> None:
    one = calls.ProducerInfo(
        client_id="c@1", remote_ip="/10.0.0.7:5000", language=Language.PYTHON, version=513,
        last_update_timestamp=1_700_000_000_000,
    )  # fmt: skip
    assert codec.dumps(calls.ProducerTable(data={"g": [one]})).decode() == (
        '{"data":{"g":[{"clientId":"c@1","language":"PYTHON",'
        '"lastUpdateTimestamp":1700000000000,"remoteIP":"/10.0.0.7:5000","version":513}]}}'
    )


def test_all_progress_has_bare_numbers_for_queues() -> None:
    offsets = calls.AllOffsets(offset_table={"t@g": {0: 3}}, pull_offset_table={"t@g": {0: 4}})
    assert codec.dumps(offsets).decode() == (
        '{"groupTopicMap":{},"offsetTable":{"t@g":{0:3}},"pullOffsetTable":{"t@g":{0:4}}}'
    )


@pytest.mark.parametrize(
    "kind",
    [
        calls.GetProducers,
        calls.GetGroupsOfTopic,
        calls.GetTopicsOfGroup,
        calls.GetSubscription,
        calls.GetEntries,
    ],
)
def test_a_request_without_its_fields_is_refused(kind: type[Any]) -> None:
    with pytest.raises(FieldError, match="is missing"):
        decode_call(Command(int(kind.code)), kind)
