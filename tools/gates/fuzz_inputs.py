"""Fuzz inputs: random calls of the functions that have a compiled form.

`CALLS` has a maker of calls for each function. Input is ordinary, damaged, or what no caller would
pass: lengths that disagree, columns whose offsets decrease, arrays that are not aligned.
"""

import json
import struct
from array import array
from collections.abc import Callable, Sequence
from inspect import unwrap
from itertools import accumulate
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from roquet.broker.ingest import property_normalizer
from roquet.rules import sql92
from roquet.store.key_index import dispatch
from roquet.wire import command, compact, plain_send
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.fields import HEADER_CODECS, encode_call
from roquet.wire.records import batch, partial_decode, record
from roquet.wire.records.plain_batch import PackedBatch
from roquet.wire.records.speedups import extension
from roquet.wire.signing import Credentials, Signer, SigningKey

EDGES: Final = (
    0, 1, -1, 2, 22, 91, 127, 128, 255, 32_767, 32_768, 65_535, 2**31 - 1, -(2**31), 2**31,
    2**32 - 22, 2**32 - 1, 2**32, 2**50, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64,
)  # fmt: skip
"""Numbers near which a length, an offset or a sum stops fitting."""

ODD: Final = (None, "s", 7, bytearray(b"x"), memoryview(b"abc"), 1.5, True)

NAMES: Final = (
    "UNIQ_KEY", "TAGS", "WAIT", "KEYS", "a", "b", "é", "UNIQ_KEYS", "XKEYS", "", "CLUSTER",
    *sorted(property_normalizer.SPECIAL),
)  # fmt: skip
WORDS: Final = (
    "", "x", "red", "false", "true", "k1 k2", "a b  c ", " ", "é", "\ud800", "\U0001f600", "\0",
    "z" * 50, "7F0000010007",
)  # fmt: skip


class Case(NamedTuple):
    """One call: its arguments, what of its answer counts, and whether Python can be asked, too."""

    arguments: tuple[Any, ...]
    answer: Callable[[Any], object] = lambda value: value
    is_sound: bool = True
    """False for columns and slices with which Arrow itself would read outside of its buffers."""


# -- parts ---------------------------------------------------------------------------------------


def number(r: Random, bits: int = 32) -> int:
    """A number; most fit into so many bits."""
    if r.random() < 0.8:
        return r.randrange(-5, 1_000)
    limit = 1 << (bits - 1)
    return r.choice([n for n in EDGES if -limit <= n < limit] if r.random() < 0.85 else EDGES)


def damage(r: Random, raw: bytes) -> bytes:
    """Bytes with up to three damages; mostly with none or one."""
    data = bytearray(raw)
    for _ in range(r.choice((0, 0, 1, 1, 2, 3))):
        at = r.randrange(len(data) + 1)
        match r.randrange(6):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = r.randbytes(1)
            case 2:
                sizes = [n for n in EDGES if 0 <= n < 1 << 32]
                data[at : at + 4] = struct.pack(">I", r.choice([*sizes, len(data), at]))
            case 3:
                data[at:at] = r.randbytes(r.randrange(30))
            case 4:
                data[at : at + 2] = struct.pack(">H", r.choice((0, 1, 255, 32_767, 65_535)))
            case _:
                del data[at : at + r.randrange(10)]
    return bytes(data)


def text_of(r: Random) -> bytes:
    """Encoded properties: mostly regular, sometimes long, cut, or any bytes."""
    if r.random() < 0.05:
        return r.randbytes(r.randrange(40))
    parts = [("UNIQ_KEY", r.choice(("7F01", "k" * 32)))] if r.random() < 0.8 else []
    parts += [
        (r.choice(NAMES if r.random() < 0.3 else NAMES[:6]), r.choice(WORDS))
        for _ in range(r.randrange(5))
    ]
    r.shuffle(parts)
    raw = "".join(f"{n}\x01{v}\x02" for n, v in parts).encode("utf-8", "surrogatepass")
    if r.random() < 0.02:
        raw = b"a\x01" + b"x" * r.choice((32_600, 32_764, 32_765, 40_000)) + b"\x02"
    return damage(r, raw) if r.random() < 0.2 else raw


def body_of(r: Random) -> bytes:
    """A body, mostly short."""
    return r.randbytes(r.choice((0, 0, 1, 5, 20, 300, 6_000)))


def topic_of(r: Random) -> bytes:
    """A topic, of the lengths at which a record's layout changes."""
    return r.choice((b"T", b"orders", b"t" * 127, b"t" * 128, b"t" * 300, "é".encode(), b"\xff",
                     b"", b"\xed\xa0\x80", b"a\0"))  # fmt: skip


def head_of(r: Random) -> tuple[list[Any], bytes]:
    """Numbers and hosts as `pack_batch` takes them, and the topic."""
    flag = r.choice((0, 0, 16, 32, 48, -1, number(r)))
    hosts = [bytes(20 if flag & 16 else 8), bytes(20 if flag & 32 else 8)]
    if r.random() < 0.05:
        hosts[r.randrange(2)] = r.randbytes(r.randrange(24))
    sizes = (32, 64, 64, 64, 64, 32, 64)
    odd = r.random() < 0.3
    numbers = [number(r, bits) if odd else r.randrange(10**6) for bits in sizes]
    queue_id, offset, position, born, stored, times, prepared = numbers
    head = [queue_id, offset, position, flag, born, hosts[0], stored, hosts[1], times, prepared]
    return head, topic_of(r)


def record_of(r: Random) -> bytes:
    """A whole record."""
    flag, topic, text = r.choice((0, 16, 32, 48)), topic_of(r), text_of(r)
    hosts = r.randbytes(20 if flag & 16 else 8), r.randbytes(20 if flag & 32 else 8)
    return record.pack(
        1, -2, 3, 2**40, flag, 5, hosts[0], -6, hosts[1], 7, 8, body_of(r), topic, text[:32_767]
    )


def records_of(r: Random) -> list[bytes]:
    """Up to three records."""
    return [record_of(r) for _ in range(r.randrange(4))]


def entries_of(r: Random) -> bytes:
    """Queue entries, some of which follow each other in the log."""
    rows, position = [], r.randrange(10**6)
    for _ in range(r.randrange(9)):
        size = r.choice((91, 200, 2**31 - 1)) if r.random() < 0.2 else r.randrange(91, 999)
        if r.random() < 0.2:
            position = r.choice((0, -1, 2**50, 2**50 + 1, 2**63 - 1, position - 5))
        if r.random() < 0.1:
            size = r.randrange(-(2**31), 2**31)
        code = r.randrange(-(2**63), 2**63) if r.random() < 0.1 else r.randrange(-9, 9)
        rows.append(struct.pack(">qiq", position, size, code))
        position = min(max(position + size, -(2**63)), 2**63 - 1)
    raw = b"".join(rows)
    return damage(r, raw) if r.random() < 0.1 else raw


def buffer_of(r: Random, raw: bytes) -> Any:
    """These bytes as one of the types that hold bytes."""
    return r.choice((bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)))(raw)


def column_of(r: Random, values: Sequence[bytes | None], kind: Any = None) -> tuple[pa.Array, bool]:
    """A column of values, whole or a slice of a larger one, and whether its offsets are sound."""
    around = [r.choice((b"", b"pad")) for _ in range(r.choice((0, 0, 1, 9)))]
    whole = pa.array([*around, *values, *around], kind or pa.binary())
    column = whole.slice(len(around), len(values))
    if kind is not None or column.buffers()[1] is None or r.random() < 0.5:
        return column, True
    if not len(whole) or r.random() < 0.3:
        return column, True
    # Buffers made here: at odd addresses, with no data, or with offsets changed after the check.
    validity, offsets, data = whole.buffers()
    edges = np.frombuffer(b"?" + offsets.to_pybytes(), np.uint8)[1:].copy()
    shift = r.choice((0, 1))
    room = np.zeros(len(edges) + 1, np.uint8)
    room[shift : shift + len(edges)] = edges
    if not edges[: 4 * (len(whole) + 1)].any() and r.random() < 0.5:
        data = pa.py_buffer(b"")
    buffers = [validity, pa.py_buffer(room).slice(shift, len(edges)), data]
    column = pa.Array.from_buffers(pa.binary(), len(whole), buffers).slice(len(around), len(values))
    is_sound = r.random() < 0.7
    if not is_sound:
        at = shift + 4 * r.randrange(len(whole) + 1)
        edge = r.choice([n for n in EDGES if -(2**31) <= n < 2**31])
        room[at : at + 4] = np.frombuffer(struct.pack("=i", edge), np.uint8)
    return column, is_sound


def array_of(r: Random, numbers: Sequence[int], kind: str = "i8") -> Any:
    """An array of numbers; sometimes not adjacent, not aligned, reversed or of another type."""
    limit = 1 << (63 if kind == "i8" else 31)
    inside = [min(max(n, -limit), limit - 1) for n in numbers]
    array: Any = np.array(inside, kind)
    match r.randrange(12):
        case 0:
            struct_array = np.zeros(len(inside), [("odd", "u1"), ("n", kind)])
            struct_array["n"] = inside
            array = struct_array["n"]
        case 1:
            array = np.repeat(array, 2)[::2]
        case 2:
            array = array[::-1].copy()[::-1]
        case 3:
            array = array.astype(f">{kind}")
        case 4:
            array = np.frombuffer(b"?" + array.tobytes(), kind, offset=1)
        case 5 if all(abs(n) < 2**31 for n in inside):
            array = array.astype("i4" if kind == "i8" else "i8")
        case _:
            pass  # an ordinary array
    return array


def column_values(buffers: Any) -> list[bytes]:
    """The values of a column, from its offsets and bytes."""
    edges, data = np.frombuffer(buffers[0], np.int32), bytes(buffers[1])
    return [data[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]


# -- calls ---------------------------------------------------------------------------------------


def item_columns(r: Random) -> Case:
    """A batch, perhaps damaged."""
    raw = b"".join(
        batch.encode_item(r.randrange(-9, 9), body_of(r), text_of(r)[:32_767])
        for _ in range(r.randrange(5))
    )
    return Case((damage(r, raw), r.choice((0, 1, 2, 3, 100, 2**31, -1))))


class ChangingItem:
    """A message of a batch whose body changes the list that it is in."""

    flag = 1
    properties = "a\x01b\x02"

    def __init__(self, items: list[Any], grows: bool) -> None:
        self._items, self._grows = items, grows

    @property
    def body(self) -> bytes:
        """The body."""
        if not self._grows:
            del self._items[1:]
        elif len(self._items) < 5:
            self._items.append(self)
        return b"body"


def encode_items(r: Random) -> Case:
    """Messages; some of odd types, some of which change the list."""
    items: list[Any] = []
    for _ in range(r.randrange(5)):
        text: Any = text_of(r)
        if r.random() < 0.5:
            text = text.decode("utf-8", "replace")
        item = SimpleNamespace(flag=number(r), body=body_of(r), properties=text)
        if r.random() < 0.05:
            setattr(item, r.choice(("flag", "body", "properties")), r.choice(ODD))
        items.append(item)
    if r.random() < 0.05:
        items[:1] = [ChangingItem(items, r.random() < 0.5)]
        return Case((items,), is_sound=False)  # the Python form would see another list
    return Case((items,))


def pack(r: Random) -> Case:
    """One record, of numbers that may not fit."""
    head, topic = head_of(r)
    queue_id, *others = head
    body: Any = body_of(r)
    if r.random() < 0.03:
        body = r.choice(ODD)
    return Case((queue_id, number(r), *others, body, topic, text_of(r)))


def pack_batch(r: Random) -> Case:
    """A batch whose columns may differ in length, or hold odd types."""
    head, topic = head_of(r)
    columns: list[list[Any]] = [[], [], [], []]
    for _ in range(r.choice((1, 1, 2, 3, 8))):
        values = (r.randrange(9), body_of(r), text_of(r), number(r, 64))
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    if r.random() < 0.05:
        r.choice(columns).append(0)
    if r.random() < 0.05:
        r.choice(columns[:3])[0] = r.choice(ODD)
    parts = [tuple(column) if r.random() < 0.3 else column for column in columns]
    return Case((*head, topic, record.BatchColumns(*parts)))


def whole_records(r: Random) -> Case:
    """Records, perhaps damaged, and where to begin."""
    raw = damage(r, b"".join(records_of(r)))
    starts = 0, 0, 0, 1, 91, len(raw), len(raw) + 5, max(0, len(raw) - 91), r.randrange(300)
    return Case((raw, r.choice(starts)))


def pack_pairs(r: Random) -> Case:
    """Pairs of a header; both forms give MessagePack, not always in the same bytes."""
    parts = []
    for _ in range(r.choice((0, 1, 2, 5, 20, 1_100))):
        name, value = (r.choice(WORDS).encode("utf-8", "surrogatepass") for _ in "12")
        value *= r.choice((1, 1, 6, 2_000))
        parts.append(struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value)
    return Case((damage(r, b"".join(parts)),), msgspec.msgpack.decode)


def decode(r: Random) -> Case:
    """A frame in either form, as written by us or by Java, often damaged."""
    names = ("a", "topic", "b", "n", "queueId", r.choice(NAMES))
    ext = {r.choice(names): r.choice(WORDS[:9] + WORDS[11:]) for _ in range(r.randrange(5))}
    fields = {name: value for name, value in ext.items() if name and value}
    code, opaque = r.choice((10, 310, -1, 3_442, number(r))), number(r)
    flag, remark = r.choice((0, 0, 1, 2)), r.choice((None, None, "FOUND", "é"))
    body, kind = body_of(r), r.randrange(2)
    if kind == 0 and r.random() < 0.7:
        header = {
            "code": code, "extFields": ext, "flag": flag, "language": r.choice(("JAVA", "GO", "X")),
            "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": number(r),
        }  # fmt: skip
        items = [item for item in header.items() if r.random() < 0.95]
        raw = json.dumps(dict(items), separators=(",", ":") if r.random() < 0.9 else None).encode()
        frame = len(raw).to_bytes(4, "big") + raw + body
    else:
        written = command.Command(
            code & 0x7FFF, r.randrange(14), 513, opaque & 0x7FFF_FFFF, flag, remark, fields, body,
            kind,
        )  # fmt: skip
        frame = command.encode(written)[4:]
    return Case((damage(r, frame) if r.random() < 0.5 else frame,))


SIGNED_NAMES: Final = (
    "AccessKey", "Signature", "a", "b", "aa", "ab", "topic", "queueId", "Sig", "SignatureX", "",
    "é", "_UNIQUE_KEY_QUERY", "~",
)  # fmt: skip


SIGNING_KEYS: Final = {name: SigningKey(name) for name in ("", "x", "alice")}


def signed_by(r: Random) -> Case:
    """Fields of a request in either form, some signed, some twice, of another type, or damaged."""
    names = SIGNED_NAMES[: r.choice((3, 9, 11, 14))]
    pairs = [(r.choice(names), r.choice(WORDS)) for _ in range(r.choice((0, 1, 3, 6, 20, 70)))]
    if r.random() < 0.8:
        pairs = [*dict(pairs).items()]
    wanted = tuple(r.choice(SIGNED_NAMES) for _ in range(r.randrange(1, 4)))
    is_json, body = r.random() < 0.6, r.randbytes(r.choice((0, 1, 300)))
    if r.random() < 0.5:
        fields = {**dict(pairs), "AccessKey": r.choice((*SIGNING_KEYS, "é"))}
        signed = {name: value for name, value in fields.items() if is_json or (name and value)}
        key = SIGNING_KEYS.get(fields["AccessKey"], SIGNING_KEYS["x"])
        pairs = [*(fields | {"Signature": key.signature(signed, body)}).items()]
    sent = _json_fields(r, pairs) if is_json else _pairs(r, pairs)
    return Case((sent, body, SIGNING_KEYS, wanted))


def _json_fields(r: Random, pairs: list[tuple[str, str]]) -> msgspec.Raw:
    escapes = r.random() < 0.7
    texts = [f"{_quoted(r, name, escapes)}:{_quoted(r, value, escapes)}" for name, value in pairs]
    if r.random() < 0.1:
        texts.append(f'"z":{r.choice(("null", "1", "true", "[]", "{}"))}')
    raw = "{" + (", " if r.random() < 0.05 else ",").join(texts) + "}"
    text = raw.encode("utf-8", "surrogatepass")
    return msgspec.Raw(damage(r, text) if r.random() < 0.3 else text)


def _quoted(r: Random, text: str, escapes: bool) -> str:
    """A JSON text, perhaps with escapes that are not needed."""
    quoted = json.dumps(text, ensure_ascii=escapes)
    if text and r.random() < 0.1:
        quoted = f'"{"".join(f"{chr(92)}u{ord(c) & 0xFFFF:04X}" for c in text)}"'
    return quoted.replace("x", r.choice(("\\/", "\\n", '\\"', "x")) if r.random() < 0.2 else "x")


def _pairs(r: Random, pairs: list[tuple[str, str]]) -> compact.PackedFields | msgspec.Raw:
    """Fields of the compact form, whose pairs were decoded, as all are that get there."""
    written = b"".join(compact.write_pairs({name: value}) for name, value in pairs)
    try:
        return compact.read_pairs(damage(r, written) if r.random() < 0.3 else written)
    except (struct.error, UnicodeDecodeError):
        return msgspec.Raw(b"null")


def encode_frame(r: Random) -> Case:
    """The frame of a call or a reply, with texts and numbers of which some do not fit."""
    text = r.choice((*WORDS, "a\x01b\x02", '"', "\\", "\x7f", "x" * r.choice((255, 4_000, 70_000))))
    odd: Any = r.choice((0, 0, True, None, 1.0))
    value = r.choice((
        Send(producer_group="g", topic=text, queue_id=number(r), born_timestamp=number(r, 64),
             properties=r.choice(WORDS), batch=r.random() < 0.5,
             broker_name=r.choice((None, text))),
        SendReply(msg_id=text, queue_id=number(r), transaction_id=r.choice((None, text))),
        PullReply(next_begin_offset=number(r, 64), min_offset=0, max_offset=r.choice(EDGES)),
        Pull(consumer_group=text, topic="t", queue_id=odd,
             queue_offset=number(r, 64), max_msg_nums=32, sys_flag=3, commit_offset=0,
             suspend_timeout_millis=0, sub_version=0),
    ))  # fmt: skip
    body = r.choice((b"", body_of(r), memoryview(body_of(r)), None))
    return Case((
        value, HEADER_CODECS[type(value)], r.randrange(2), number(r), r.randrange(4), number(r),
        r.choice((3, 3, 13, 14, -1, 256)), r.choice((513, number(r))),
        r.choice((None, "", "FOUND", text)), body,
    ))  # fmt: skip


def offset_message_ids(r: Random) -> Case:
    """Ids of positions, some of which do not fit."""
    host = r.randbytes(r.choice((0, 8, 20)))
    return Case((host, [number(r, 64) for _ in range(r.randrange(5))]))


def property_finder(r: Random) -> Case:
    """A name, looked for in several texts."""
    texts = [text_of(r) for _ in range(3)]
    return Case((r.choice(NAMES),), lambda find: [find(text) for text in texts])


def property_positions(r: Random) -> Case:
    """Records and their edges, or edges that are none."""
    raws = records_of(r)
    edges = [sum(map(len, raws[:count])) for count in range(len(raws) + 1)]
    raw = damage(r, b"".join(raws))
    if r.random() < 0.2:
        edges = [r.choice((0, 1, -1, len(raw) - 91, len(raw), 2**40, 2**62)) for _ in range(3)]
    return Case((raw, edges, topic_of(r)))


def _number_text(r: Random) -> str:
    """Digits, perhaps with signs, points and other characters."""
    if r.random() < 0.3:
        return str(abs(r.choice(EDGES)))
    return "".join(
        r.choices(
            "0123456789.-+e \u0665", (9,) * 10 + (6, 2, 1, 1, 1, 1), k=r.choice((1, 3, 9, 17))
        )
    )


def expression_of(r: Random, depth: int = 3) -> str:  # noqa: PLR0911 - kinds of expressions
    """A filter expression on two properties."""
    name, word, number = (
        r.choice("ab"),
        r.choice(("x", "red", "\ufffd", "é")),
        r.choice(("0", "5", "- 5", "99.5", "2147483648", "999999999999999", "1e300")),
    )
    match r.randrange(8 if depth else 5):
        case 0:
            return f"{name} {r.choice(('=', '<>', '<', '<=', '>', '>='))} {number}"
        case 1:
            return f"{name} {r.choice(('', 'NOT '))}BETWEEN - 9 AND {r.choice(('5', '99'))}"
        case 2:
            return f"{name} {r.choice(('=', 'CONTAINS', 'STARTSWITH', 'NOT ENDSWITH'))} '{word}'"
        case 3:
            return f"{name} {r.choice(('', 'NOT '))}IN ('{word}', 'true')"
        case 4:
            return f"{name} IS {r.choice(('', 'NOT '))}NULL"
        case 5:
            return f"NOT ({expression_of(r, depth - 1)})"
        case _:
            both = (expression_of(r, depth - 1) for _ in "12")
            return f"({r.choice((' AND ', ' OR ')).join(both)})"


def record_matcher(r: Random) -> Case:
    """An expression, and the properties of several records; the places may be wrong."""
    node = sql92.parse(expression_of(r))
    texts = [
        f"a\x01{_number_text(r)}\x02b\x01{r.choice(WORDS)}\x02".encode("utf-8", "surrogatepass")
        if r.random() < 0.7
        else text_of(r)
        for _ in range(r.randrange(5))
    ]
    edges = list(accumulate(map(len, texts), initial=0))
    block, begins, most = damage(r, b"".join(texts)), edges[:-1], r.choice((0, 1, 9))
    if r.random() < 0.2:
        begins = [r.choice((0, 1, -1, len(block), 2**40)) for _ in range(r.randrange(4))]
    matches = sql92.matcher(node, partial_decode.property_finder)
    return Case(
        (sql92.conditions_of(node), matches),
        lambda matching: matching(block, begins, edges, most),
    )


def plain_facts(r: Random) -> Case:
    """One text."""
    return Case((text_of(r),))


def plain_batch(r: Random) -> Case:
    """Texts of a batch, and what they share."""
    texts = [text_of(r) for _ in range(r.choice((0, 1, 2, 8)))]
    return Case((texts, text_of(r) if r.random() < 0.3 else b"", b"CLUSTER\x01C\x02"))


def key_hashes(r: Random) -> Case:
    """Topics and texts; the number of both may differ."""
    topics, texts = [topic_of(r)] * r.randrange(5), [text_of(r) for _ in range(r.randrange(5))]
    if r.random() < 0.9:
        topics = [topic_of(r) for _ in texts] if r.random() < 0.5 else [topic_of(r)] * len(texts)
    return Case((topics, texts, dispatch.hash_key))


def link_entries(r: Random) -> Case:
    """Slots with any numbers in them, and entries to add."""
    slots = bytearray(
        b"".join(
            struct.pack(">i", r.choice((0, 0, 1, 2, 5, -1, 9, 2**31 - 1)))
            for _ in range(r.choice((0, 1, 2, 5, 20)))
        )
    )
    slots += bytes(r.choice((0, 0, 0, 3)))
    count = r.randrange(8)
    columns = [[number(r, bits) for _ in range(count)] for bits in (32, 64, 64)]
    columns[0] = [abs(n) % 2**31 if r.random() < 0.98 else n for n in columns[0]]
    if r.random() < 0.05:
        r.choice(columns).append(1)
    begin = min(max(number(r, 64), -(2**63)), 2**63 - 1)
    columns[2] = [min(max(n, -(2**63)), 2**63 - 1) for n in columns[2]]
    numbers: list[Any] = columns
    if r.random() < 0.95 and all(-(2**63) <= n < 2**63 for n in columns[1]):
        columns[0] = [n if -(2**31) <= n < 2**31 else 0 for n in columns[0]]
        numbers = list(map(array, "iqq", columns))
    return Case((slots, *numbers, begin, r.choice((1, 1, 5, 9, 2**31 - 1, 2**31 - 3, 0, -1))))


def entry_columns(r: Random) -> Case:
    """Entries in any buffer."""
    return Case((buffer_of(r, entries_of(r)),))


def sum_sizes(r: Random) -> Case:
    """Entries in any buffer."""
    return Case((buffer_of(r, entries_of(r)),))


def contains(r: Random) -> Case:
    """A few letters many times, and a text of them that may be there."""
    letters = r.choice((b"ab", b"KEYS\x01", b"a"))
    data = bytes(r.choices(letters, k=r.choice((0, 1, 4, 1_030, 5_000))))
    size = r.choice((0, 1, 2, 3, 5, 12))
    start = r.randrange(len(data) + 1)
    wanted = data[start : start + size] if r.random() < 0.5 else bytes(r.choices(letters, k=size))
    return Case((buffer_of(r, data), wanted))


def join_entries(r: Random) -> Case:
    """Entries, and limits of their bytes and their number."""
    limits = r.choice((0, 500, 2_000, 2**31, 2**63 - 1, -1)), r.choice((0, 1, 3, -1, 2**40))
    return Case((buffer_of(r, entries_of(r)), *limits))


def adjacent_range(r: Random) -> Case:
    """Entries, those that are looked at, and a limit of their bytes."""
    start, count = r.choice((0, 20, 40, 7)), r.choice((0, 1, 1, 2, 3, 2**40))
    size_max = r.choice((0, 500, 2_000, 2**31, 2**63 - 1, -1))
    return Case((buffer_of(r, entries_of(r)), start, count, size_max))


def plain_records(r: Random) -> Case:
    """Records of two queues as they lie in a log, perhaps damaged, and where to begin and end."""
    start, offsets, raw = r.choice((0, 0, 7, 91)), [0, 2**63 - 2], bytearray()
    position, topics = r.choice((0, 5_000, 2**50, -1, 2**62)), [topic_of(r), b"SCHEDULE_TOPIC_XXXX"]
    for _ in range(r.randrange(6)):
        flag, queue_id = r.choice((0, 0, 16, 32, 48, 4, 8, 12, 128)), r.randrange(2)
        hosts = r.randbytes(20 if flag & 16 else 8), r.randbytes(20 if flag & 32 else 8)
        raw += record.pack(
            queue_id, 0, offsets[queue_id], min(position + len(raw), 2**63 - 1), flag, 5, hosts[0],
            r.choice((0, -6, 2**40)), hosts[1], 0, 0, body_of(r), topics[r.random() < 0.03],
            text_of(r)[:32_767],
        )  # fmt: skip
        offsets[queue_id] = min(offsets[queue_id] + r.choice((1, 1, 1, 1, 0, 2)), 2**63 - 1)
    data = bytes(start) + bytes(raw)
    view = buffer_of(r, damage(r, data) if r.random() < 0.3 else data)
    limit = r.choice((len(view), len(view), r.randrange(len(view) + 1)))
    return Case((view, start, limit, position, r.choice((9, 9, 9, 0, 1, 3, 2**40))))


def join_ranges(r: Random) -> Case:
    """Ranges of a view; some begin or end outside of it, or have no bytes."""
    view, begin = buffer_of(r, r.randbytes(100)), r.choice((0, 0, 1 << 30, number(r, 64)))
    starts = [begin + r.randrange(90) for _ in range(r.randrange(1, 5))]
    stops = [start + r.randrange(10) for start in starts]
    if r.random() < 0.2:
        r.choice((starts, stops))[0] = begin + r.choice((-1, 101, 50, *EDGES))
    if r.random() < 0.05:
        stops.append(begin)
    return Case((view, begin, starts, stops))


def join_properties(r: Random) -> Case:
    """Columns of values for names; some null or empty, some with a separator."""
    count, width = r.choice((0, 1, 2, 9)), r.choice((0, 1, 1, 2, 3))
    columns, is_sound = [], True
    for _ in range(width):
        values: list[bytes | None] = [r.choice((b"", b"v", b"w" * 20)) for _ in range(count)]
        if count and r.random() < 0.4:
            values[r.randrange(count)] = None
        if count and r.random() < 0.05:
            values[r.randrange(count)] = b"a\x01" if r.random() < 0.5 else b"\x02"
        if r.random() < 0.03:
            values.append(b"x")
        kind = r.choice((pa.large_binary(), pa.string())) if r.random() < 0.05 else None
        column, sound = column_of(r, values, kind)
        columns.append(column)
        is_sound &= sound
    names = [r.choice((b"KEYS", b"TAGS", b"", b"n" * 50)) for _ in columns]
    if r.random() < 0.03:
        names.append(b"one more")
    return Case((names, columns), column_values, is_sound)


def batch_body(r: Random) -> Case:
    """Bodies and texts, and the rows of a batch, which may not be there."""
    count = r.choice((0, 1, 2, 9))
    bodies, bodies_sound = column_of(r, [body_of(r) for _ in range(count)])
    texts, texts_sound = column_of(r, [text_of(r)[:32_767] for _ in range(count)])
    flags = array_of(r, [number(r) for _ in range(count if r.random() < 0.95 else count + 1)], "i4")
    rows = list(range(count))
    if r.random() < 0.5:
        rows = [r.randrange(count) for _ in range(r.randrange(9))] if count else []
    if r.random() < 0.1:
        rows.append(r.choice((-1, count, 2**31, 2**62, -(2**63))))
    arguments = (bodies, texts, flags, array_of(r, rows))
    return Case(arguments, is_sound=bodies_sound and texts_sound)


def numbered_texts(r: Random) -> Case:
    """A prefix and numbers; some counts are far beyond what fits."""
    first = r.choice([n for n in EDGES if abs(n) < 2**63] if r.random() < 0.3 else range(20_000))
    first = r.choice((first, 10 ** r.randrange(19) - 3))
    count = r.choice((0, 1, 5, 200)) if r.random() < 0.97 else r.choice((2**60, 2**62, 2**63 - 1))
    return Case((r.choice((b"", b"job-", b"p" * 40)), first, count), column_values)


def record_fields(r: Random) -> Case:
    """A block of records, perhaps damaged."""
    raw = b"".join(records_of(r))
    raw = damage(r, raw) if r.random() < 0.3 else raw
    block = r.choice((bytes, bytearray, memoryview))(raw)
    return Case((block,), lambda value: np.frombuffer(value, np.int64).tolist())


def cut_slices(r: Random) -> Case:
    """Slices of a block; some are outside of it, or in no order."""
    raw = body_of(r)
    edges = sorted(r.randrange(len(raw) + 1) for _ in range(2 * r.choice((1, 2, 9))))
    starts, ends = edges[0::2], edges[1::2]
    if r.random() < 0.2:
        column = r.choice((starts, ends))
        column[r.randrange(len(column))] = r.choice([n for n in EDGES if abs(n) < 2**63])
    if r.random() < 0.03:
        starts.append(0)
    shown = [edge for pair in zip(starts, ends, strict=False) for edge in pair]
    arguments = (buffer_of(r, raw), array_of(r, starts), array_of(r, ends))
    return Case(arguments, column_values, is_sound=shown == sorted(shown))


def split_texts(r: Random) -> Case:
    """A column of texts, of which most are regular."""
    values: list[bytes | None] = []
    for _ in range(r.choice((0, 1, 2, 9))):
        pairs = range(r.randrange(4))
        text = b"".join(b"n%d\x01%b\x02" % (n, r.choice((b"v", b"w" * 30))) for n in pairs)
        values.append(text_of(r) if r.random() < 0.05 else text)
    if values and r.random() < 0.03:
        values[-1] = None
    column, is_sound = column_of(r, values)
    return Case((column,), _split_values, is_sound)


def decode_whole(r: Random) -> Case:
    """Some frames one after the other, now and then cut off, damaged or over the limit."""
    frames = [decode(r).arguments[0] for _ in range(r.choice((0, 1, 1, 2, 5)))]
    chunk = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    if r.random() < 0.3:
        chunk = damage(r, chunk)
    return Case((chunk, r.choice((1 << 24, 1 << 24, 200))))


def plain_sends(r: Random) -> Case:
    """Sends one after the other, in either form; some ask for more, are signed, or damaged."""
    frames, keys = [], r.choice((None, SIGNING_KEYS))
    for _ in range(r.choice((0, 1, 1, 2, 5))):
        kind, is_batch = r.choice((Send, Send, SendBatch)), r.random() < 0.3
        call = kind(
            producer_group=r.choice(WORDS), topic=r.choice(WORDS), queue_id=number(r),
            born_timestamp=number(r, 64), flag=number(r), sys_flag=number(r), body=body_of(r),
            properties=text_of(r).decode("utf-8", "replace"), batch=is_batch,
        )  # fmt: skip
        form, oneway = r.randrange(2), r.random() < 0.05
        opaque = number(r) & 0x7FFF_FFFF
        encode = encode_call
        if keys is not None and r.random() < 0.9:
            encode = Signer(_credentials(r)).encode_call
        frames.append(encode(call, opaque=opaque, serialize_type=form, oneway=oneway))
    chunk = b"".join(frames)
    if r.random() < 0.5:
        chunk = damage(r, chunk)
    return Case((chunk, r.choice((1 << 24, 1 << 24, 200)), keys), send_values)


def send_values(sends: Sequence[plain_send.PlainSend]) -> list[tuple[Any, ...]]:
    """The values of plain sends, whichever reader has made them."""
    names = (*plain_send.PlainSend.__struct_fields__, "body_size")
    return [tuple(getattr(send, name) for name in names) for send in sends]


def plain_send_of(r: Random) -> plain_send.PlainSend:
    """One plain send, mostly as the compiled reader makes it."""
    key, form = r.choice([word for word in WORDS if word and word.isascii()]), r.randrange(2)
    call = Send(
        producer_group="g", topic=r.choice(("T", "t" * 200)), queue_id=r.randrange(1 << 31),
        born_timestamp=r.randrange(1 << 58), flag=r.randrange(1 << 31), body=b"x" + body_of(r),
        properties=f"UNIQ_KEY\x01{key}\x02" + "KEYS\x01k\x02" * r.randrange(9),
    )  # fmt: skip
    raw = encode_call(call, opaque=r.randrange(1 << 31), serialize_type=form)
    (send,) = plain_send.plain_sends(raw, 1 << 24, None)
    if r.random() < 0.05:
        names = plain_send.PlainSend.__struct_fields__
        return plain_send.PlainSend(*[getattr(send, name) for name in names])
    return send


def put_send(r: Random) -> Case:
    """A plain send and two maps, in which there may be no room; numbers fit."""
    records, entries = bytearray(r.choice((0, 100, 500, 9_000))), bytearray(r.choice((0, 19, 60)))
    at, entry_at = (r.choice((0, 1, 20, number(r, 64) % 2**62, -1)) for _ in range(2))
    room = r.choice((0, 200, len(records) - at, 2**62, -1))
    offset, position, now_ms = (r.randrange(1 << r.choice((8, 62))) for _ in range(3))
    hosts = [r.randbytes(r.choice((8, 8, 20, 7))) for _ in range(2)]
    sys_flag = r.choice((0, 0, 16, 32, 48, 1 << 30))
    topic, tail = topic_of(r), r.choice((b"", b"CLUSTER\x01c\x02", bytes(32_767)))
    return Case((
        plain_send_of(r), records, at, room, entries, entry_at, offset, position, sys_flag,
        hosts[0], now_ms, hosts[1], topic, tail,
    ))  # fmt: skip


def _credentials(r: Random) -> Credentials:
    """Those of a user among `SIGNING_KEYS`, whose secret is his name, or of another one."""
    return Credentials(access_key=r.choice(("x", "alice")), secret_key=r.choice(("x", "alice")))


def plain_pulls(r: Random) -> Case:
    """Pulls one after the other, in either form; some ask for more, are signed, or damaged."""
    frames, keys = [], r.choice((None, SIGNING_KEYS))
    for _ in range(r.choice((0, 1, 1, 2, 5))):
        call = Pull(
            consumer_group=r.choice(WORDS), topic=r.choice(WORDS), queue_id=number(r),
            queue_offset=number(r, 64), max_msg_nums=number(r), sys_flag=number(r),
            commit_offset=number(r, 64), suspend_timeout_millis=number(r, 64),
            sub_version=number(r, 64), subscription=r.choice((None, *WORDS)),
            expression_type=r.choice((None, "TAG", "SQL92")),
            max_msg_bytes=r.choice((None, number(r))), topic_id=r.choice((None, None, None, "id")),
        )  # fmt: skip
        form, oneway = r.randrange(2), r.random() < 0.05
        opaque = number(r) & 0x7FFF_FFFF
        encode = Signer(_credentials(r)).encode_call if r.random() < 0.5 else encode_call
        frames.append(encode(call, opaque=opaque, serialize_type=form, oneway=oneway))
    chunk = b"".join(frames)
    if r.random() < 0.5:
        chunk = damage(r, chunk)
    return Case((chunk, r.choice((1 << 24, 1 << 24, 200)), keys))


def found_reply(r: Random) -> Case:
    """The parts of a reply to a pull."""
    opaque, offsets = r.randrange(-(1 << 31), 1 << 31), [r.randrange(1 << 63) for _ in range(3)]
    body = body_of(r)
    return Case((opaque, r.randrange(2), *offsets, r.choice((body, memoryview(body)))))


def stored_reply(r: Random) -> Case:
    """The parts of a reply, whose texts are mostly plain; numbers fit, as those of a store do."""
    host = r.randbytes(r.choice((8, 8, 20, 7, 21, 40)))
    position, offset = r.randrange(1 << r.choice((8, 63))), r.randrange(1 << r.choice((8, 63)))
    return Case((plain_send_of(r), host, position, offset, r.choice(WORDS), r.random() < 0.5))


def batch_reply(r: Random) -> Case:
    """The parts of a reply to a batch."""
    send, host, _, offset, region, trace_on = stored_reply(r).arguments
    rows = [
        record.ENTRY.pack(r.randrange(1 << r.choice((8, 63))), 91, r.randrange(-9, 9))
        for _ in range(r.choice((1, 2, 32, 32, 110, 130)))
    ]
    parts = (send.opaque, send.serialize_type, host, b"".join(rows), send.queue_id, offset)
    return Case((*parts, region, trace_on))


def pack_items(r: Random) -> Case:
    """The body of a batch send, mostly plain, with what `pack_batch` takes besides."""
    head, topic = head_of(r)
    if r.random() < 0.7:
        topic = r.choice((b"T", b"orders", b"t" * 127))
    texts = [
        text_of(r) if r.random() < 0.1 else b"UNIQ_KEY\x01%d\x02KEYS\x01a  b\x02TAGS\x01t\x02" % n
        for n in range(r.choice((0, 1, 2, 8)))
    ]
    flag = number(r) & 0x7FFF_FFFF
    items = b"".join([batch.encode_item(flag, body_of(r), text[:32_767]) for text in texts])
    shared = r.choice((b"", b"WAIT\x01true\x02", b"KEYS\x01c\x02", b"torn"))
    items = damage(r, items) if r.random() < 0.2 else items
    return Case((*head[:-1], topic, items, shared, b"CLUSTER\x01C\x02"))


def usual_items(*arguments: Any) -> PackedBatch | None:
    """The result of `pack_items` where that is compiled, made column by column."""
    assert extension is not None
    if extension.pack_items(*arguments) is None:
        return None
    *head, topic, items, shared, added = arguments
    flags, bodies, texts = unwrap(batch.item_columns)(items, 1 << 31)
    plain = unwrap(property_normalizer.plain_batch)(texts, shared, added)
    assert plain is not None
    stored, codes, waits = plain
    columns = record.BatchColumns(flags, bodies, stored, codes)
    records, entries = unwrap(record.pack_batch)(*head, 0, topic, columns)
    hashes, owners = unwrap(dispatch.key_hashes)([topic] * len(stored), stored, dispatch.hash_key)
    positions = [position for position, _, _ in record.ENTRY.iter_unpack(entries)]
    return PackedBatch(
        records, entries, codes, array("i", hashes).tobytes(),
        array("q", [positions[owner] for owner in owners]).tobytes(), waits,
    )  # fmt: skip


def _split_values(parts: Any) -> object:
    if parts is None:
        return None
    rows, names, values = parts
    return np.frombuffer(rows, np.int32).tolist(), column_values(names), column_values(values)


CALLS: Final[dict[str, Callable[[Random], Case]]] = {
    call.__name__: call
    for call in (
        item_columns, encode_items, pack, pack_batch, pack_pairs, whole_records, property_finder,
        property_positions, record_matcher, plain_facts, plain_batch, key_hashes, link_entries,
        entry_columns, sum_sizes, contains, decode, decode_whole, plain_sends, plain_pulls,
        put_send, stored_reply, encode_frame, join_entries, join_ranges, join_properties,
        batch_body, offset_message_ids, numbered_texts, record_fields, cut_slices, split_texts,
        plain_records, signed_by, pack_items, batch_reply, found_reply, adjacent_range,
    )
}  # fmt: skip
