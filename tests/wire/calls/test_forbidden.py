from collections.abc import Callable
from typing import Any

from roquet.wire import dialect
from roquet.wire.calls.bodies import GroupForbidden
from roquet.wire.calls.forbidden import ForbidGroup

Agree = Callable[[str, type[Any]], None]


def test_headers_agree_with_javas(agree: Agree) -> None:
    agree("UpdateGroupForbiddenRequestHeader", ForbidGroup)


def test_a_body_is_written_as_java_writes_it() -> None:
    text = '{"group":"group_5","readable":true,"topic":"Topic7"}'
    assert dialect.dumps(dialect.loads(text, GroupForbidden)).decode() == text
