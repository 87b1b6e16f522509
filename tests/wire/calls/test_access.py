from typing import Any

import pytest
from tests.vector_lines import vector_lines

from roquet.wire.calls.access import (
    AclInfo,
    CreateUser,
    UpdateUser,
    UserInfo,
)
from roquet.wire.fastjson import codec

LINES = vector_lines("auth/admin.jsonl")
BODIES = [
    line["out"]["body"] for line in LINES if line["out"]["body"]
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_bodies_of_a_genuine_broker_are_written_again_byte_for_byte(body: str) -> None:
    kind: Any = UserInfo if "username" in body else AclInfo
    wanted = list[kind] if body.startswith("[") else kind
    assert codec.dumps(codec.loads(body, wanted)).decode() == body


def test_a_printed_user_or_request_has_no_password() -> None:
    body = b'{"password":"hush-hush"}'
    user = UserInfo(username="alice", password="hush-hush")
    assert "hush" not in repr([user, CreateUser(username="a", body=body), UpdateUser(body=body)])
