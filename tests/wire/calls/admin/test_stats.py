"""Statistics, against texts of Apache's classes."""

from typing import Any

import pytest
from tests.vector_lines import vector_lines
from tests.wire.calls.conftest import agree

from roquet.model.errors import FieldError
from roquet.wire.calls.admin import stats as calls
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.command import Command
from roquet.wire.fastjson import codec
from roquet.wire.fields import decode_call

LINES = vector_lines("bodies.jsonl")
KINDS: dict[str, Any] = {
    "BrokerStatsData": calls.StatsData,
    "BrokerStatsItem": calls.StatsItem,
    "ConsumeStatsList": calls.ConsumeStatsList,
    "EpochEntryCache": calls.BrokerEpochs,
    "HARuntimeInfo": calls.HaStatus,
    "QueryConsumeTimeSpanBody": calls.TimeSpans,
    "QueryCorrectionOffsetBody": calls.Corrections,
    "QueueTimeSpan": calls.TimeSpan,
    "TopicOffset": calls.QueueStats,
    "TopicStatsTable": calls.TopicStats,
}


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("GetTopicStatsInfoRequestHeader", calls.GetTopicStats),
        ("GetConsumeStatsInBrokerHeader", calls.GetAllConsumeStats),
        ("QueryConsumeTimeSpanRequestHeader", calls.GetTimeSpan),
        ("QueryCorrectionOffsetHeader", calls.GetCorrections),
        ("ViewBrokerStatsDataRequestHeader", calls.ViewStats),
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


def test_a_leader_without_followers_says_what_the_genuine_one_says() -> None:
    status = calls.HaStatus(master=True, master_commit_log_max_offset=2330)
    assert codec.dumps(status).decode() == (
        '{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,'
        '"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},'
        '"haConnectionInfo":[],"inSyncSlaveNums":0,"master":true,"masterCommitLogMaxOffset":2330}'
    )


def test_a_list_of_progress_names_each_group() -> None:
    some = calls.ConsumeStatsList(consume_stats_list=[{"g": [ConsumeStats()]}], broker_addr="h:1")
    assert codec.dumps(some).decode() == (
        '{"brokerAddr":"h:1","consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":{}}]}],'
        '"totalDiff":0,"totalInflightDiff":0}'
    )


@pytest.mark.parametrize(
    "kind", [calls.GetTopicStats, calls.GetTimeSpan, calls.GetCorrections, calls.ViewStats]
)
def test_a_request_without_its_fields_is_refused(kind: type[Any]) -> None:
    with pytest.raises(FieldError, match="is missing"):
        decode_call(Command(int(kind.code)), kind)
