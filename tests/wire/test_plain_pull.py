"""Plain pulls are read as the ordinary way reads them, or not at all."""

import json
from inspect import unwrap
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.wire.calls.pull import LitePull, Pull
from roquet.wire.codes import Language, SerializeType
from roquet.wire.fields import encode_call
from roquet.wire.plain_pull import PlainPull, found_reply, plain_pulls
from roquet.wire.records.speedups import COMPILED, use_compiled
from roquet.wire.signing import Credentials, Signer, SigningKey
from usual_requests import Keys, usual_pull

pytestmark = pytest.mark.skipif(not COMPILED, reason="without a compiler there are none")

SIZE_MAX = 1 << 24
FORMS = (SerializeType.JSON, SerializeType.ROCKETMQ)
GONE = "left out"
"""Value of a field that is left out."""

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 5)
LONG_NUMBERS = st.integers(-2, 2**63 - 1) | st.integers(0, 99)


def make(kind: type[Pull] = Pull, **fields: Any) -> Pull:
    given_: dict[str, Any] = {
        "consumer_group": "g", "topic": "T", "queue_id": 3, "queue_offset": 64, "max_msg_nums": 32,
        "sys_flag": 3, "commit_offset": 32, "suspend_timeout_millis": 15_000, "sub_version": 5,
        "expression_type": "TAG", "max_msg_bytes": 2**31 - 1, "request_source": -1,
    }  # fmt: skip
    return kind(**given_ | fields)


def frame(call: Pull, form: int = SerializeType.JSON, **options: Any) -> bytes:
    return encode_call(call, opaque=7, serialize_type=form, **options)


def kept(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value != GONE}


def with_header(changed: dict[str, Any], fields: dict[str, Any]) -> bytes:
    """The frame of a pull whose JSON header somebody else has written."""
    raw = frame(make())
    header = json.loads(raw[8:])
    header["extFields"] = kept(header["extFields"] | fields)
    text = json.dumps(kept(header | changed), separators=(",", ":")).encode()
    return (4 + len(text)).to_bytes(4) + len(text).to_bytes(4) + text


def found_in(chunk: bytes, size_max: int = SIZE_MAX, keys: Keys = None) -> list[PlainPull]:
    return plain_pulls(chunk, size_max, keys)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "fields", [{}, {"subscription": "a || b", "max_msg_bytes": None}, {"commit_offset": -1}]
)
def test_an_ordinary_pull_is_read_in_one_pass(form: int, fields: dict[str, Any]) -> None:
    raw = frame(make(**fields), form, language=Language.GO, version=400)
    assert found_in(raw) == [usual_pull(raw)]


@given(
    form=st.sampled_from(FORMS),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "consumer_group": TEXTS, "topic": TEXTS, "queue_id": NUMBERS,
            "queue_offset": LONG_NUMBERS, "max_msg_nums": NUMBERS, "sys_flag": NUMBERS,
            "commit_offset": LONG_NUMBERS, "suspend_timeout_millis": LONG_NUMBERS,
            "subscription": st.none() | TEXTS, "sub_version": LONG_NUMBERS,
            "expression_type": st.none() | TEXTS, "max_msg_bytes": st.none() | NUMBERS,
            "request_source": st.none() | NUMBERS, "topic_id": st.none() | TEXTS,
            "body": st.sampled_from([b"", b"{}"]),
        },
    ),
    number=st.integers(0, 3),
)  # fmt: skip
@example(SerializeType.JSON, {"subscription": 'é"\\'}, 1)
@example(SerializeType.ROCKETMQ, {"subscription": "é", "topic": "é"}, 2)
def test_what_is_found_is_what_the_ordinary_way_reads(
    form: int, fields: dict[str, Any], number: int
) -> None:
    raw, plain = frame(make(**fields), form), frame(make(), form)
    found = found_in(plain * number + raw)
    assert found[:number] == [usual_pull(plain, len(plain) * (n + 1)) for n in range(number)]
    if len(found) > number:
        assert found[number:] == [usual_pull(raw, len(plain) * number + len(raw))]


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_that_is_cut_ends_them(form: int) -> None:
    raw = frame(make(), form)
    for size in range(len(raw)):
        assert len(found_in(raw + raw[:size])) == 1
    assert found_in(b"") == []
    assert found_in(raw + b"\0\0\0\0") == [usual_pull(raw)]


def test_a_frame_over_the_limit_is_left() -> None:
    raw = frame(make())
    assert found_in(raw, len(raw) - 4) == [usual_pull(raw)]
    assert found_in(raw, len(raw) - 5) == []


@pytest.mark.parametrize("form", FORMS)
def test_other_requests_are_left(form: int) -> None:
    others = [
        frame(make(), form, oneway=True),
        frame(make(LitePull), form),
        frame(make(topic_id="id"), form),
        frame(make(body=b"{}"), form),
    ]
    for raw in others:
        assert found_in(raw) == []


ODD_FIELDS = (
    *({"topic": GONE}, {"consumerGroup": GONE}, {"queueId": GONE}, {"queueOffset": GONE}),
    *({"queueId": 3}, {"queueId": "03"}, {"queueId": "2147483648"}, {"maxMsgNums": "many"}),
    *(
        {"queueOffset": "+3"},
        {"queueOffset": ""},
        {"queueOffset": "9" * 19},
        {"queueOffset": "-"},
        {"sysFlag": "null"},
    ),
    *({"subscription": None}, {"subscription": "\ud800"}, {"topicId": ""}),
)
ODD_HEADERS = (
    *({"flag": 1}, {"remark": "x"}, {"code": 10}, {"other": 1}, {"extFields": None}),
    {"extFields": GONE},
)


@pytest.mark.parametrize("header", ODD_HEADERS, ids=str)
def test_headers_that_nobody_writes_so_are_left(header: dict[str, Any]) -> None:
    assert found_in(with_header(header, {})) == []


@pytest.mark.parametrize("fields", ODD_FIELDS, ids=ascii)
def test_fields_that_nobody_writes_so_are_left(fields: dict[str, Any]) -> None:
    assert found_in(with_header({}, fields)) == []


def test_a_field_that_is_given_twice_leaves_the_request() -> None:
    raw = frame(make()).replace(b'"queueId":"3"', b'"queueId":"3","queueId":"4"')
    size = len(raw) - 4
    assert found_in(size.to_bytes(4) + (size - 4).to_bytes(4) + raw[8:]) == []


def test_fields_that_pulls_do_not_have_are_passed_over() -> None:
    raw = with_header({}, {"AccessKey": "k", "bname": "b", "lo": "false"})
    assert found_in(raw) == [usual_pull(raw)]


@pytest.mark.parametrize("form", FORMS)
def test_a_signed_pull_has_the_key_that_has_signed_it(form: int) -> None:
    keys: Keys = {"alice": SigningKey("secret of alice", "alice")}
    signer, stranger = (
        Signer(Credentials(access_key="alice", secret_key=secret))
        for secret in ("secret of alice", "guessed")
    )
    raw = signer.encode_call(make(), opaque=7, serialize_type=form)
    assert found_in(raw, keys=keys) == [usual_pull(raw, keys=keys)]
    for other in (stranger.encode_call(make(), opaque=7, serialize_type=form), frame(make(), form)):
        assert found_in(raw + other, keys=keys) == [usual_pull(raw, keys=keys)]


def test_without_compiled_forms_none_is_found() -> None:
    before = use_compiled(False)
    try:
        assert found_in(frame(make())) == []
    finally:
        use_compiled(before)


@given(
    opaque=st.integers(-(2**31), 2**31 - 1),
    form=st.sampled_from(FORMS),
    offsets=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3),
    body=st.binary(max_size=50),
)
def test_replies_are_those_of_the_ordinary_way(
    opaque: int, form: int, offsets: tuple[int, int, int], body: bytes
) -> None:
    usual: Any = unwrap(found_reply)
    for given_ in (body, memoryview(body)):
        parts = (opaque, int(form), *offsets, given_)
        assert found_reply(*parts) == usual(*parts)
