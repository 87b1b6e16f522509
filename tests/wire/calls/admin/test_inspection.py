from typing import Any

import pytest

from roquet.model.errors import FieldError
from roquet.wire.calls.admin import inspection as calls
from roquet.wire.codes import Language
from roquet.wire.command import Command
from roquet.wire.fastjson import codec
from roquet.wire.fields import decode_call


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
