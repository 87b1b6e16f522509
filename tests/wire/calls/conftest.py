"""Headers that Java's classes write and read, compared with ours."""

from typing import Any

import pytest
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.wire.call import Call, Reply
from roquet.wire.command import ROCKETMQ, Command, decode
from roquet.wire.fields import (
    HEADER_CODECS,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
    to_ext,
)
from roquet.wire.frame import FrameReader

Struct = type[Call[Any]] | type[Reply]

LINES = vector_lines("headers.jsonl")


def frame(stream: bytes) -> bytes:
    (only,) = FrameReader().feed(stream)
    return only


def typed(command: Command, ours: Struct) -> Call[Any] | Reply:
    return decode_call(command, ours) if issubclass(ours, Call) else decode_reply(command, ours)


def again(value: Call[Any] | Reply, serialize_type: int) -> Command:
    """Command of an encoded value."""
    if isinstance(value, Call):
        return decode(frame(encode_call(value, opaque=1, serialize_type=serialize_type)))
    return decode(frame(encode_reply(value, Command(0, serialize_type=serialize_type))))


def check_encoded(given: dict[str, Any], out: dict[str, Any], ours: Struct) -> None:
    """Check that Java's frames decode to our value, and our value encodes to Java's texts."""
    body = bytes.fromhex(given["body"] or "")
    of_json = bytes.fromhex(out["json_prefix"]) + out["json_header"].encode()
    for stream in (of_json, bytes.fromhex(out["binary_header"])):
        value = typed(decode(frame(stream + body)), ours)
        names = {field.wire_name for field in HEADER_CODECS[ours].fields}
        sent = {name: text for name, text in out["ext"].items() if name in names and text}
        assert to_ext(value).items() >= sent.items()
        assert value.body == body
        for kind in (0, ROCKETMQ):
            assert typed(again(value, kind), ours) == value


def check_decoded(ext: dict[str, str], out: dict[str, Any], ours: Struct) -> None:
    """Check for equal typed values; an object that is null in Java has a default or is refused.

    A missing number or truth of Java's primitive types has its default here, too.
    """
    missing = [f for f in HEADER_CODECS[ours].fields if f.required and f.wire_name not in ext]
    if missing:
        assert [out.get(f.wire_name) for f in missing] == [None] * len(missing)
        with pytest.raises(FieldError, match="is missing"):
            typed(Command(0, fields=ext), ours)
        return
    value = typed(Command(0, fields=ext), ours)
    for field in HEADER_CODECS[ours].fields:
        if (expected := out.get(field.wire_name)) is not None:
            assert getattr(value, field.name) == expected, field.name


def agree(java: str, ours: Struct) -> None:
    """Check that our class encodes and decodes like Java's."""
    lines = [(line["in"], line["out"]) for line in LINES if line["in"].get("class") == java]
    assert lines, f"no vectors for {java}"
    for vector, out in lines:
        if vector["op"] == "encode":
            check_encoded(vector, out, ours)
        elif "error" not in out:
            check_decoded(vector["ext"], out, ours)
