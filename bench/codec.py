"""Cost of the wire codec: microseconds for each step of a send and of a pull, as JSON.

Both ends of a conversation are shown, in both forms of the header: a broker pays `decode_whole`,
`decode_send` and `encode_send_reply` for every message that it takes; `feed_and_decode` is what
`decode_whole` stands in for.
"""

import argparse
import json
import platform
import timeit
from collections.abc import Callable, Mapping

from roquet.model.topic import OffsetTable
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import SerializeType
from roquet.wire.command import decode, decode_whole
from roquet.wire.fastjson.codec import dumps, loads
from roquet.wire.fields import decode_call, decode_reply, encode_call, encode_reply
from roquet.wire.frame import FRAME_SIZE_MAX, FrameReader

ROUNDS = 20_000

SEND = Send(
    producer_group="flights",
    topic="Flights",
    queue_id=3,
    born_timestamp=1_700_000_000_000,
    properties="KEYS\x01N14228\x02UNIQ_KEY\x01" + "0A" * 16 + "\x02TAGS\x01UA\x02WAIT\x01true\x02",
    body=b"x" * 128,
)
SENT = SendReply(msg_id="0A" * 16, queue_id=3, queue_offset=12_345, transaction_id="0A" * 16)
PULL = Pull(
    consumer_group="flights",
    topic="Flights",
    queue_id=3,
    queue_offset=12_345,
    max_msg_nums=32,
    sys_flag=6,
    commit_offset=0,
    suspend_timeout_millis=15_000,
    subscription="*",
    sub_version=1_700_000_000_000,
)
PULLED = PullReply(next_begin_offset=12_377, min_offset=0, max_offset=99_999, body=b"x" * 32 * 300)
OFFSETS = OffsetTable(
    offset_table={f"topic-{n}@group": {queue: n * queue for queue in range(8)} for n in range(100)}
)


def steps() -> Mapping[str, Callable[[], object]]:
    """Every step by its name."""
    reader = FrameReader()
    stream = encode_call(SEND, opaque=1)
    many, table = stream * 50, dumps(OFFSETS)
    found: dict[str, Callable[[], object]] = {
        "feed": lambda: reader.feed(stream),
        "feed_50": lambda: reader.feed(many),
        "table_dumps": lambda: dumps(OFFSETS),
        "table_loads": lambda: loads(table, OffsetTable),
    }
    for form in SerializeType:
        found |= {f"{form.name.lower()}_{name}": step for name, step in steps_in(form).items()}
    return found


def steps_in(form: int) -> Mapping[str, Callable[[], object]]:
    """The steps in one form of the header."""

    def frame(stream: bytes) -> bytes:
        (only,) = FrameReader().feed(stream)
        return only

    reader, stream = FrameReader(), encode_call(SEND, opaque=1, serialize_type=form)
    sent = frame(stream)
    asked = frame(encode_call(PULL, opaque=2, serialize_type=form))
    send, pull = decode(sent), decode(asked)
    pulled = decode(frame(encode_reply(PULLED, pull)))
    return {
        "decode": lambda: decode(sent),
        "feed_and_decode": lambda: [decode(frame) for frame in reader.feed(stream)],
        "decode_whole": lambda: decode_whole(stream, FRAME_SIZE_MAX),
        "decode_send": lambda: decode_call(send, Send),
        "decode_pull": lambda: decode_call(pull, Pull),
        "decode_pull_reply": lambda: decode_reply(pulled, PullReply),
        "encode_send": lambda: encode_call(SEND, opaque=1, serialize_type=form),
        "encode_pull": lambda: encode_call(PULL, opaque=1, serialize_type=form),
        "encode_send_reply": lambda: encode_reply(SENT, send),
        "encode_pull_reply": lambda: encode_reply(PULLED, pull),
    }


def measured(step: Callable[[], object], repeats: int) -> float:
    """Microseconds a step, at its best."""
    timer = timeit.Timer(step)
    rounds = max(1, min(ROUNDS, int(0.05 / max(timer.timeit(1), 1e-6))))
    return round(min(timer.repeat(repeats, rounds)) / rounds * 1e6, 3)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    found = {name: measured(step, repeats) for name, step in steps().items()}
    print(json.dumps({"python": platform.python_version(), "microseconds": found}, indent=2))


if __name__ == "__main__":
    main()
