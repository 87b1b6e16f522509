"""Access to the proxy: who signed a request, and what he may do."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.proxy.conftest import (
    TYPES,
    Context,
    User,
    authorization,
    consumer_settings,
    producer_settings,
    receive_request,
    stored,
)

from roquet.access.translation import encode_document
from roquet.model import access as model
from roquet.model.access import AccessTables, PolicyType, UserStatus, UserType
from roquet.proxy import access as proxy_access
from roquet.proxy.access import ProxyAccess
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.proxy.transaction_id import decode_transaction_id
from roquet.rules.access.changes import change_acl, policy_entry
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.proxy_signing import AUTHORIZATION, DATE_TIME

DATE = "20261130T042351Z"


def tables_with(*entries: tuple[str, str]) -> AccessTables:
    """The users root, alice with these entries, and dora, who is disabled."""
    users = {
        "root": model.User(name="root", password="rootsecret", user_type=UserType.SUPER),
        "alice": model.User(name="alice", password="alicesecret"),
        "dora": model.User(name="dora", password="dorasecret", status=UserStatus.DISABLE),
    }
    tables = AccessTables(users=users)
    policies = [policy_entry(name, [action], None, "Allow") for name, action in entries]
    return change_acl(tables, "alice", [(PolicyType.CUSTOM, policies)]) if policies else tables


def signed(user: str, secret: str | None = None) -> dict[str, str]:
    header = authorization(user, secret if secret is not None else f"{user}secret", DATE)
    return {AUTHORIZATION: header, DATE_TIME: DATE}


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({}, "the request is not signed: give the client"),
        (signed("", ""), "the request is not signed: give the client"),
        ({AUTHORIZATION: signed("alice")[AUTHORIZATION]}, "the header x-mq-date-time is missing"),
        (signed("alice", "wrong"), "the signature of user 'alice' is wrong"),
        (signed("nobody"), "the signature of user 'nobody' is wrong"),
        ({**signed("alice"), DATE_TIME: "later"}, "the signature of user 'alice' is wrong"),
        (signed("dora"), "user 'dora' is disabled"),
    ],
)
def test_a_request_of_no_known_user_is_unauthorized(metadata: dict[str, str], text: str) -> None:
    tables = tables_with()
    with pytest.raises(ProxyRefusal, match=text) as caught:
        ProxyAccess(lambda: tables).authenticate(metadata)
    assert caught.value.code is StatusCode.UNAUTHORIZED


def route(topic: str) -> Any:
    return service.QueryRouteRequest(topic=pb.Resource(name=topic))


def check(access: ProxyAccess, topic: str, user: str = "alice") -> None:
    found = access.authenticate(signed(user))
    access.authorize(found, "QueryRoute", route(topic), "10.0.0.7:4711")


def test_policies_say_what_a_user_may_do_and_nothing_binds_super_users() -> None:
    tables = tables_with(("Topic:orders", "Pub"))
    access = ProxyAccess(lambda: tables)
    check(access, "orders")
    check(access, "anything", "root")
    with pytest.raises(ProxyRefusal, match="no permission to access Topic:others from"):
        check(access, "others")


def test_without_policies_each_known_user_may_do_everything() -> None:
    tables = tables_with()
    access = ProxyAccess(lambda: tables, checks_policies=False)
    check(access, "orders")
    with pytest.raises(ProxyRefusal):
        check(access, "orders", "nobody")


def test_a_right_that_is_taken_away_counts_at_once() -> None:
    tables = [tables_with(("Topic:orders", "Pub"))]
    access = ProxyAccess(lambda: tables[0])
    check(access, "orders")
    tables[0] = tables_with()
    with pytest.raises(ProxyRefusal):
        check(access, "orders")


def test_what_is_remembered_and_asked_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tables_with(("Topic:t*", "Pub"))
    access = ProxyAccess(lambda: tables)
    monkeypatch.setattr(proxy_access, "ALLOWED_MAX", 2)
    for number in range(5):
        check(access, f"t{number}")
        check(access, "t" * 300)
    monkeypatch.setattr(proxy_access, "NEEDS_MAX", 2)
    request = service.SendMessageRequest()
    for number in range(3):
        request.messages.add().topic.name = f"t{number}"
    with pytest.raises(ProxyRefusal, match="more than 2 topics"):
        access.authorize(access.authenticate(signed("alice")), "SendMessage", request, "")


class SecuredProxy:
    """A proxy whose users are those of a file."""

    def __init__(self, running: Cluster, directory: Path) -> None:
        self.file = directory / "users.json"
        self.running = running

    def allow(self, *entries: tuple[str, str]) -> None:
        self.file.write_bytes(encode_document(tables_with(*entries)))
        self.file.chmod(0o600)

    def start(self) -> Proxy:
        config = ProxyConfig(clock=this_loop().clock, access_file=self.file)
        proxy = Proxy(self.running.namesrv_addr, config)
        proxy.start()
        return proxy


@pytest.fixture
def secured(running: Cluster, tmp_path: Path) -> SecuredProxy:
    made = SecuredProxy(running, tmp_path)
    made.allow()
    return made


def alice(proxy: Proxy) -> User:
    return User(proxy, "alice-1", **signed("alice"))


async def test_a_user_sends_and_receives_what_his_policies_allow(secured: SecuredProxy) -> None:
    secured.allow(("Topic:NORM", "Pub"), ("Topic:NORM", "Sub"), ("Group:g", "Sub"))
    proxy = secured.start()
    user = alice(proxy)
    async with user.telemetry(consumer_settings()) as answer:
        assert answer.status.code == pb.OK
        assert await user.receive(timeout_s=6) == []
        assert (await user.send("NORM", b"mine")).status.code == pb.OK
        (message,) = await user.receive()
        assert (await user.ack(message)).status.code == pb.OK
    assert (await user.send("FIFOT", message_group="g")).status.code == pb.FORBIDDEN
    assert (await User(proxy).send("NORM")).status.code == pb.UNAUTHORIZED
    assert (await User(proxy, "r", **signed("root")).send("PROBE")).status.code == pb.OK
    await proxy.close()


async def test_a_change_of_the_file_counts_soon(secured: SecuredProxy) -> None:
    proxy = secured.start()
    assert (await alice(proxy).send("NORM")).status.code == pb.FORBIDDEN
    secured.allow(("Topic:NORM", "Pub"))
    await this_loop().clock.sleep(6_000)
    assert (await alice(proxy).send("NORM")).status.code == pb.OK
    await proxy.close()


@pytest.mark.parametrize(
    ("metadata", "code"), [({}, pb.UNAUTHORIZED), (signed("alice"), pb.FORBIDDEN)]
)
async def test_a_stream_is_told_why_it_ends(
    secured: SecuredProxy, metadata: dict[str, str], code: int
) -> None:
    proxy = secured.start()
    user = User(proxy, **metadata)
    async with user.telemetry(producer_settings("NORM")) as answer:
        assert answer.status.code == code
    await proxy.close()


async def test_a_client_id_belongs_to_the_user_who_has_it_connected(secured: SecuredProxy) -> None:
    secured.allow(("Topic:NORM", "Pub"), ("Topic:NORM", "Sub"), ("Group:g", "Sub"))
    proxy = secured.start()
    root, thief = (User(proxy, "one", **signed(name)) for name in ("root", "alice"))
    async with root.telemetry(consumer_settings()):
        request = service.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
        assert (await thief.call("NotifyClientTermination", request)).status.code == pb.FORBIDDEN
        async with thief.telemetry(consumer_settings()) as answer:
            assert answer.status.code == pb.FORBIDDEN
        assert (await root.call("NotifyClientTermination", request)).status.code == pb.OK
    async with thief.telemetry(consumer_settings()) as answer:
        assert answer.status.code == pb.OK
    await proxy.close()


async def test_a_right_that_is_lost_while_a_receive_waits_counts(secured: SecuredProxy) -> None:
    secured.allow(("Topic:NORM", "Pub"), ("Topic:NORM", "Sub"), ("Group:g", "Sub"))
    proxy = secured.start()
    user, root = alice(proxy), User(proxy, "r", **signed("root"))
    async with user.telemetry(consumer_settings()), root.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        waiting = asyncio.create_task(user.call("ReceiveMessage", receive_request("g", "NORM"), 30))
        await this_loop().clock.sleep(1_000)
        secured.allow()
        await this_loop().clock.sleep(6_000)
        await root.send("NORM", b"secret")
        assert [part.status.code for part in await waiting] == [pb.FORBIDDEN]
        (message,) = await root.receive()
        assert message.body == b"secret"
    await proxy.close()


async def test_a_stream_gets_no_message_after_its_user_has_lost_the_right(
    secured: SecuredProxy,
) -> None:
    secured.allow(("Topic:TXT", "Pub"))
    proxy = secured.start()
    user, root = alice(proxy), User(proxy, "r", **signed("root"))
    async with user.telemetry(producer_settings("TXT")):
        secured.allow()
        await this_loop().clock.sleep(6_000)
        assert (await root.send("TXT", b"secret", message_type="TRANSACTION")).status.code == pb.OK
        await this_loop().clock.sleep(300_000)
    assert [command.status.code for command in user.told] == [pb.FORBIDDEN]
    assert not user.told[0].HasField("recover_orphaned_transaction_command")
    await proxy.close()


async def test_a_refusal_is_logged_once(
    secured: SecuredProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = secured.start()
    for _ in range(5):
        await User(proxy).send("NORM")
    assert caplog.text.count("refused SendMessage of 10.0.0.7") == 1
    await proxy.close()


async def test_a_position_of_another_topics_message_is_refused(secured: SecuredProxy) -> None:
    """The broker would do as the proxy's own user asks: copy a message for whoever names it."""
    secured.allow(("Topic:NORM", "Pub"), ("Topic:NORM", "Sub"), ("Group:g", "Sub"))
    proxy = secured.start()
    root, user = User(proxy, "r", **signed("root")), alice(proxy)
    await root.send("PROBE", b"secret")
    (secret,) = await stored(secured.running, "PROBE")
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"mine")
        (mine,) = await user.receive()
        head, _, _ = mine.system_properties.receipt_handle.rpartition(" ")
        position = int(secret.offset_message_id[16:], 16)
        request = service.ForwardMessageToDeadLetterQueueRequest(
            group=pb.Resource(name="g"), topic=pb.Resource(name="NORM")
        )
        request.receipt_handle = f"{head} {position}"
        answer = await user.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == pb.FORBIDDEN
        request.receipt_handle = mine.system_properties.receipt_handle
        answer = await user.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == pb.OK
    await proxy.close()


async def test_a_transaction_of_another_topic_is_not_ended(secured: SecuredProxy) -> None:
    secured.allow(("Topic:NORM", "Pub"), ("Topic:TXT", "Pub"))
    proxy = secured.start()
    user = alice(proxy)
    sent = await user.send("TXT", message_type="TRANSACTION")
    half = sent.entries[0].transaction_id
    assert decode_transaction_id(half).broker == "broker-a"
    request = service.EndTransactionRequest(
        topic=pb.Resource(name="NORM"), transaction_id=half, resolution="COMMIT"
    )
    assert (await user.call("EndTransaction", request)).status.code == pb.FORBIDDEN
    request.topic.name = "TXT"
    assert (await user.call("EndTransaction", request)).status.code == pb.OK
    await proxy.close()


async def test_every_method_is_refused_to_a_user_without_rights(secured: SecuredProxy) -> None:
    proxy = secured.start()
    user = alice(proxy)
    for name in proxy.methods.keys() - {"Telemetry"}:
        request = named(name)
        answer = await user.call(name, request)
        status = answer[0].status if isinstance(answer, list) else answer.status
        assert status.code == pb.FORBIDDEN, name
    await proxy.close()


def named(method: str) -> Any:
    """A request that names a topic, a group or both."""
    if method == "ReceiveMessage":
        return receive_request("g", "NORM")
    request = getattr(service, f"{method}Request")()
    fields = request.DESCRIPTOR.fields_by_name
    if "messages" in fields:
        request.messages.add().topic.name = "NORM"
    if "message_queue" in fields:
        request.message_queue.topic.name = "NORM"
    for field, name in (("topic", "NORM"), ("group", "g")):
        if field in fields:
            getattr(request, field).name = name
    assert "NORM" in TYPES
    return request


async def test_operators_need_the_rights_of_their_service(running: Cluster, tmp_path: Path) -> None:
    tables = tables_with(("Cluster:proxy.admin.route", "Get"), ("Topic:*", "Pub"))
    path = tmp_path / "access.json"
    path.write_bytes(encode_document(tables))
    config = ProxyConfig(clock=this_loop().clock, access_file=path)
    proxy = Proxy(running.namesrv_addr, config)
    proxy.start()
    server = proxy.admin()
    route = admin.GetTopicRouteRequest(topic=pb.Resource(name="NORM"))
    send = admin.AdminSendMessageRequest(topic=pb.Resource(name="NORM"), body=b"x")
    for user, method, request, code in (
        ("alice", "GetTopicRoute", route, pb.OK),
        ("alice", "AdminSendMessage", send, pb.FORBIDDEN),
        ("root", "AdminSendMessage", send, pb.OK),
        ("dora", "GetTopicRoute", route, pb.UNAUTHORIZED),
    ):
        context = Context(signed(user), 3)
        answer = await server.methods[method].unary_unary(request, context)
        assert answer.status.code == code, (user, method)
    await server.client.__aexit__(None, None, None)
    await proxy.close()
