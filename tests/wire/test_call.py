import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.for_each import for_each

from roquet.wire import calls
from roquet.wire.call import NOT_FIELDS, Call, Int, Long, Reply
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.fields import HEADER_CODECS


def subclasses(root: Any) -> Iterator[Any]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


for module in pkgutil.walk_packages(calls.__path__, f"{calls.__name__}."):
    importlib.import_module(module.name)
CALLS = [call for call in subclasses(Call) if call.__module__.startswith("roquet.")]


JAVA_INITIALIZERS = {
    ("MaxOffset", "committed", True),
    ("ResetOffset", "queueId", -1),
    ("ElectMaster", "brokerId", -1),
}
"""Fields of Java's header classes that begin with another value than 0 or false."""

REQUIRED_IN_JAVA = {"defaultTopic", "defaultTopicQueueNums", "c", "d", "topicFilterType"}
"""Fields without which Java refuses a request, and for which a default is taken here."""


@for_each(CALLS)
def test_what_a_peer_leaves_out_is_false_or_zero_as_in_javas_headers(call: type[Call[Any]]) -> None:
    others = {
        (call.__name__, field.encode_name, field.default)
        for field in msgspec.structs.fields(call)
        if field.name not in NOT_FIELDS
        if field.encode_name not in REQUIRED_IN_JAVA
        if not field.required and field.default
    }
    assert others <= JAVA_INITIALIZERS


@for_each(CALLS)
def test_a_call_knows_its_code_its_reply_and_its_fields(call: type[Call[Any]]) -> None:
    assert isinstance(call.code, RequestCode)
    assert issubclass(call.reply, Reply)
    assert ResponseCode.SUCCESS in call.accepts
    assert HEADER_CODECS[call].fields is not None
    assert HEADER_CODECS[call.reply].fields is not None


def test_no_two_calls_share_a_code() -> None:
    codes = [call.code for call in CALLS]
    assert len(codes) == len(set(codes))


def test_a_reply_is_a_success_without_more() -> None:
    assert Reply() == Reply(code=ResponseCode.SUCCESS, remark=None, body=b"")


def test_a_call_is_frozen() -> None:
    with pytest.raises(AttributeError):
        setattr(CALLS[0](**dict.fromkeys(names(CALLS[0]), "x")), "body", b"")  # noqa: B010


def names(call: type[Call[Any]]) -> list[str]:
    return [field.name for field in HEADER_CODECS[call].fields if field.required]


def test_code_remark_and_body_are_not_fields() -> None:
    assert set(Reply.__struct_fields__) == NOT_FIELDS


@pytest.mark.parametrize(("kind", "bits"), [(Int, 31), (Long, 63)])
def test_numbers_are_as_wide_as_javas(kind: Any, bits: int) -> None:
    assert msgspec.convert(2**bits - 1, kind) == 2**bits - 1
    assert msgspec.convert(-(2**bits), kind) == -(2**bits)
    for beyond in (2**bits, -(2**bits) - 1):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(beyond, kind)
