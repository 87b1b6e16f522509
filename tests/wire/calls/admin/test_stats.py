from typing import Any

import pytest

from roquet.model.errors import FieldError
from roquet.wire.calls.admin import stats as calls
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.command import Command
from roquet.wire.fastjson import codec
from roquet.wire.fields import decode_call


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
