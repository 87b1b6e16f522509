"""Users and ACLs, managed over the network."""

import logging
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker

from roquet.model.errors import CallRefused
from roquet.wire.call import Reply
from roquet.wire.calls.access import (
    SUCCESS_REMARK,
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    PolicyEntryInfo,
    PolicyInfo,
    UpdateAcl,
    UpdateUser,
    UserInfo,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.signing import Credentials


@pytest.fixture
def settings() -> dict[str, Any]:
    root = Credentials(access_key="root", secret_key="rootsecret")
    return {"authentication_enabled": True, "initial_user": root}


def user(**fields: str) -> bytes:
    return codec.dumps(UserInfo(**fields))


def acl(resource: str = "Topic:a") -> bytes:
    entry = PolicyEntryInfo(resource=resource, actions=["Pub"], decision="Allow")
    return codec.dumps(AclInfo(policies=[PolicyInfo(entries=[entry])]))


async def made(broker: LocalBroker, name: str = "bob") -> None:
    """Make a normal user."""
    call = CreateUser(username=name, access_key="root", body=user(password="p"))
    assert (await broker.ask(call)).remark == SUCCESS_REMARK


def code_of(error: pytest.ExceptionInfo[CallRefused]) -> int:
    return error.value.code


async def test_a_user_is_made_shown_and_deleted(broker: LocalBroker) -> None:
    await made(broker)
    shown = broker.ask(GetUser(username="bob", access_key="root"))
    assert isinstance(shown, Reply)
    assert codec.loads(shown.body, UserInfo) == UserInfo(
        username="bob", password="p", user_type="Normal", user_status="enable"
    )
    await broker.ask(DeleteUser(username="bob", access_key="root"))
    assert broker.ask(GetUser(username="bob", access_key="root")) == Reply(remark=SUCCESS_REMARK)


async def test_passwords_are_shown_to_super_users_alone(broker: LocalBroker) -> None:
    await made(broker)
    assert b"rootsecret" in broker.ask(ListUsers(access_key="root")).body
    assert b"password" not in broker.ask(ListUsers(access_key="bob")).body
    assert broker.ask(ListUsers(access_key="root", filter="zzz")).body == b""


async def test_a_missing_name_or_body_is_refused(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused, match="The username is blank") as refused:
        await broker.ask(CreateUser(access_key="root", body=user(password="p")))
    assert code_of(refused) == ResponseCode.INVALID_PARAMETER
    with pytest.raises(CallRefused, match="The body of user is null") as refused:
        await broker.ask(UpdateUser(username="bob", access_key="root"))
    assert code_of(refused) == ResponseCode.SYSTEM_ERROR


async def test_acls_are_changed_by_super_users_alone(broker: LocalBroker) -> None:
    await made(broker)
    with pytest.raises(CallRefused, match="only be changed by super user"):
        await broker.ask(CreateAcl(subject="User:bob", access_key="bob", body=acl("*")))
    await broker.ask(CreateAcl(subject="User:bob", access_key="root", body=acl()))
    with pytest.raises(CallRefused, match="only be changed by super user"):
        await broker.ask(DeleteAcl(subject="User:bob", access_key="bob"))
    listed = broker.ask(ListAcls(subject_filter="bob"))
    assert listed.body == b"[" + broker.ask(GetAcl(subject="User:bob")).body + b"]"
    await broker.ask(DeleteAcl(subject="User:bob", resource="Topic:a", access_key="root"))
    assert broker.ask(GetAcl(subject="User:bob")).body == b""


async def test_an_update_takes_the_place_of_the_entry_of_its_resource(broker: LocalBroker) -> None:
    await made(broker)
    for resource in ("Topic:a", "Topic:b"):
        await broker.ask(CreateAcl(subject="User:bob", access_key="root", body=acl(resource)))
    denied = PolicyEntryInfo(resource="Topic:a", actions=["All"], decision="Deny")
    body = codec.dumps(AclInfo(policies=[PolicyInfo(entries=[denied])]))
    await broker.ask(UpdateAcl(subject="User:bob", access_key="root", body=body))
    entries = broker.access.tables.acls["bob"].custom
    assert [(str(one.resource), str(one.decision)) for one in entries] == [
        ("Topic:a", "Deny"), ("Topic:b", "Allow"),
    ]  # fmt: skip


async def test_the_subject_of_the_body_wins(broker: LocalBroker) -> None:
    await made(broker)
    named = codec.loads(acl(), AclInfo)
    body = codec.dumps(AclInfo(subject="User:bob", policies=named.policies))
    await broker.ask(CreateAcl(subject="User:nobody", access_key="root", body=body))
    assert list(broker.access.tables.acls) == ["bob"]


async def test_who_changed_what_is_logged_without_secrets(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await made(broker)
    assert caplog.messages == ["user bob created by root from 10.0.0.7:5000"]
    assert vars(caplog.records[0])["audit"] is True, "such a line is never left out"
