from tests.vector_lines import vector_lines

from roquet.model.queue import MessageQueue
from roquet.wire.calls.admin import client_forwarding
from roquet.wire.calls.admin import client_forwarding as wire
from roquet.wire.fastjson import codec

LINES = vector_lines("bodies.jsonl")


def texts(java: str) -> list[str]:
    return [line["out"]["text"] for line in LINES if line["in"]["class"] == java]


def test_the_codes_are_the_genuine_ones() -> None:
    assert (int(wire.GetRunningInfo.code), int(wire.ConsumeDirectly.code)) == (307, 309)


def test_the_parts_of_running_info_have_names() -> None:
    found = codec.loads(texts("ConsumerRunningInfo")[1], wire.RunningInfo)
    info = found.mq_table[MessageQueue("Topic1", "broker-c", 0)]
    assert (info.cached_size, info.cached_msg_min_offset, info.locked) == (50, 68234, True)
    rates = found.status_table["statusTable3"]
    assert (rates.pull_ms, rates.handled, rates.failed_in_all) == (24.0, 6.75, 54128)
    assert found.mq_pop_table[MessageQueue("Topic0", "broker-b", 1)].wait_ack_count == 173
    assert found.properties[client_forwarding.CONSUME_TYPE] == "CONSUME_PASSIVELY"


def test_a_verdict_is_read_and_written_to_the_byte() -> None:
    (text,) = texts("ConsumeMessageDirectlyResult")
    result = codec.loads(text, wire.ConsumeDirectlyResult)
    assert result.consume_result is wire.ConsumeResult.CR_RETURN_NULL
    assert (result.spent_ms, result.auto_commit) == (3994, False)
    assert codec.dumps(result).decode() == text
