from typing import Any

import pytest
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.wire import pop_reply

LINES = vector_lines("pop.jsonl")


def lines(op: str) -> list[Any]:
    return [pytest.param(line["in"], line["out"]) for line in LINES if line["in"]["op"] == op]


@pytest.mark.parametrize(("given", "out"), lines("pop_info"))
def test_offsets_and_counts_of_a_pop_reply(given: dict[str, Any], out: dict[str, Any]) -> None:
    starts, offsets, counts = [], [], []
    for part in given["parts"]:
        topic, queue_id, start = part["topic"], part["queue_id"], part["start_offset"]
        starts.append(pop_reply.start_info(topic, queue_id, start))
        offsets.append(pop_reply.offset_info(topic, queue_id, part["offsets"]))
        counts.append(pop_reply.queue_count_info(topic, queue_id, part["queue_count"]))
        counts.append(pop_reply.offset_count_info(topic, queue_id, start, part["offset_count"]))
    assert ";".join(starts) == out["start_offset_info"]
    assert ";".join(offsets) == out["msg_offset_info"]
    assert ";".join(counts) == out["order_count_info"]
    assert pop_reply.parse_starts(out["start_offset_info"]) == out["parsed_start"]
    assert pop_reply.parse_offsets(out["msg_offset_info"]) == out["parsed_offsets"]
    assert pop_reply.parse_starts(out["order_count_info"]) == out["parsed_counts"]


@pytest.mark.parametrize("text", ["", "0 1", "0 1 x", "0 1 1;", "0 1 2 3"])
def test_broken_information_is_refused(text: str) -> None:
    with pytest.raises(FieldError):
        pop_reply.parse_starts(text)
