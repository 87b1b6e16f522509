from tests.wire.calls.conftest import agree

from roquet.wire.calls.admin.group_forbidden import ForbidGroup
from roquet.wire.calls.bodies import GroupForbidden
from roquet.wire.fastjson import codec


def test_headers_agree_with_javas() -> None:
    agree("UpdateGroupForbiddenRequestHeader", ForbidGroup)


def test_a_body_is_written_as_java_writes_it() -> None:
    text = '{"group":"group_5","readable":true,"topic":"Topic7"}'
    assert codec.dumps(codec.loads(text, GroupForbidden)).decode() == text
