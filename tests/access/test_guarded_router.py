"""A router behind a guard."""

import asyncio
import logging

import msgspec
import pytest
from tests.access.conftest import PEER, TABLES, peer_at, request_of

from roquet.access.guard import PLAIN_CODES, AccessGuard, AccessRules
from roquet.access.guarded_router import GuardedRouter
from roquet.access.required_access import REQUIRED
from roquet.model.access import AccessTables, PolicyType
from roquet.net.router import DeferredReply, Peer
from roquet.rules.access.changes import change_acl, policy_entry
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.command import Command, decode, encode
from roquet.wire.plain_pull import plain_pulls
from roquet.wire.plain_send import plain_sends
from roquet.wire.records.speedups import COMPILED


@pytest.fixture
def served() -> list[GetSettings]:
    """The calls that the handler has got."""
    return []


@pytest.fixture
def router(served: list[GetSettings]) -> GuardedRouter:
    rules = AccessRules(cluster="c1", checks_policies=True)
    router = GuardedRouter(AccessGuard(lambda: TABLES, rules, lambda: 0))

    def handler(call: GetSettings, _peer: Peer) -> Reply:
        served.append(call)
        return Reply()

    router.add(GetSettings, handler)
    return router


def answer(frame: object) -> Command:
    assert isinstance(frame, bytes)
    return decode(frame[4:])


def test_an_admitted_request_is_served(router: GuardedRouter, served: list[GetSettings]) -> None:
    assert answer(router.dispatch(request_of(GetSettings(), "root"), PEER)).code == 0
    assert len(served) == 1
    assert router.user == "root"


def test_a_refused_request_never_gets_to_its_handler(
    router: GuardedRouter, served: list[GetSettings]
) -> None:
    reply = answer(router.dispatch(request_of(GetSettings()), PEER))
    assert (reply.code, reply.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
    assert (reply.opaque, reply.ext, reply.body) == (7, {}, b"")
    assert router.dispatch(request_of(GetSettings(), oneway=True), PEER) is None
    assert served == []


def test_a_code_without_a_handler_is_refused_to_strangers_first(router: GuardedRouter) -> None:
    unknown = msgspec.structs.replace(request_of(GetSettings(), "bob"), code=9999)
    reply = answer(router.dispatch(unknown, PEER))
    assert (reply.code, reply.remark) == (3, " request type 9999 not supported")
    assert answer(router.dispatch(Command(9999), PEER)).code == ResponseCode.NO_PERMISSION


def test_a_guard_that_fails_admits_nobody(
    served: list[GetSettings], caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> AccessTables:
        raise RuntimeError("no tables")

    router = GuardedRouter(AccessGuard(broken, AccessRules(cluster="c1"), lambda: 0))
    router.add(GetSettings, lambda call, _: served.append(call))
    with caplog.at_level(logging.ERROR):
        reply = answer(router.dispatch(request_of(GetSettings(), "root"), PEER))
    assert (reply.code, served) == (ResponseCode.SYSTEM_ERROR, [])
    assert caplog.messages == [f"the check of code {int(GetSettings.code)} failed"]


PULL = Pull(
    consumer_group="g", topic="orders", queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=2,
    commit_offset=0, suspend_timeout_millis=15_000, sub_version=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("kept", "reply"),
    [
        (["root", "bob", "alice"], (0, None)),
        (["root", "bob"], (ResponseCode.NO_PERMISSION, "User:alice is not found.")),
        (
            ["alice"],
            (
                ResponseCode.NO_PERMISSION,
                "User:alice has no permission to access Topic:orders from 127.0.0.1, "
                "no matched policies.",
            ),
        ),
    ],
)
async def test_a_pull_that_waited_is_answered_by_the_rights_of_then(
    kept: list[str], reply: tuple[int, str]
) -> None:
    entries = [
        policy_entry(resource, ["Sub"], None, "Allow") for resource in ("Topic:orders", "Group:g")
    ]
    reader = change_acl(TABLES, "alice", [(PolicyType.CUSTOM, entries)])
    now = [reader]
    rules = AccessRules(cluster="c1", checks_policies=True)
    router = GuardedRouter(AccessGuard(lambda: now[0], rules, lambda: 0))
    came = asyncio.Event()

    async def hold(_call: Pull, _peer: Peer) -> Reply:
        await came.wait()
        return Reply(body=b"messages")

    router.add(Pull, hold)
    waiting = router.dispatch(request_of(PULL, "alice"), PEER)
    assert isinstance(waiting, DeferredReply)
    assert asyncio.iscoroutine(waiting.frame)
    acls = reader.acls if "root" in kept else {}
    now[0] = AccessTables(users={name: TABLES.users[name] for name in kept}, acls=acls)
    came.set()
    got = answer(await waiting.frame)
    assert (got.code, got.remark) == reply
    assert got.body == (b"" if got.code else b"messages")


async def test_a_pull_that_waited_is_not_checked_again_where_nothing_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = AccessGuard(lambda: TABLES, AccessRules(cluster="c1"), lambda: 0)
    router = GuardedRouter(guard)
    monkeypatch.delattr(AccessGuard, "admit_again")

    async def at_once(_call: Pull, _peer: Peer) -> Reply:
        return Reply(body=b"messages")

    router.add(Pull, at_once)
    waiting = router.dispatch(request_of(PULL, "alice"), PEER)
    assert isinstance(waiting, DeferredReply)
    assert asyncio.iscoroutine(waiting.frame)
    assert answer(await waiting.frame).body == b"messages"


# Plain sends: see wire.plain_send.


def send_by(user: str | None, topic: str = "orders", form: int = 0, secret: str = "") -> bytes:
    call = Send(
        producer_group="g", topic=topic, queue_id=0, born_timestamp=1, body=b"x",
        properties="UNIQ_KEY\x01k\x02",
    )  # fmt: skip
    return encode(request_of(call, user, secret or None, serialize_type=form))


def served_plain(router: GuardedRouter, raw: bytes, peer: Peer = PEER) -> bytes | None:
    """The reply of the short way to a request, None where it is left to the ordinary one."""
    sends = router.read_plain(raw, 1 << 24)
    return router.serve_plain(sends[0], peer) if sends else None


@pytest.fixture
def users() -> list[AccessTables]:
    """The tables in force are the last ones."""
    return [TABLES]


@pytest.fixture
def guarded(users: list[AccessTables]) -> GuardedRouter:
    rules = AccessRules(cluster="c1", checks_policies=True)
    router = GuardedRouter(AccessGuard(lambda: users[-1], rules, lambda: 0))
    router.add(Send, lambda call, peer: None)
    router.add_plain([310], plain_sends, lambda send, peer: f"stored for {router.user}".encode())
    return router


def dispatched(router: GuardedRouter, user: str, topic: str = "orders") -> int:
    call = Send(producer_group="g", topic=topic, queue_id=0, born_timestamp=1, body=b"x")
    return answer(router.dispatch(request_of(call, user), PEER)).code


def test_the_topic_alone_decides_on_a_plain_send() -> None:
    assert REQUIRED[RequestCode.SEND_MESSAGE_V2].fields == ("b",)


@pytest.mark.skipif(not COMPILED, reason="without a compiler there are none")
@pytest.mark.parametrize("form", [0, 1])
class TestPlainSends:
    def test_one_is_served_once_the_same_was_allowed(
        self, guarded: GuardedRouter, form: int
    ) -> None:
        assert served_plain(guarded, send_by("alice", form=form)) is None
        assert dispatched(guarded, "alice") == 0
        assert served_plain(guarded, send_by("alice", form=form)) == b"stored for alice"

    def test_a_pull_is_served_once_the_same_was_allowed(
        self, guarded: GuardedRouter, form: int
    ) -> None:
        call = Pull(
            consumer_group="g", topic="orders", queue_id=0, queue_offset=0, max_msg_nums=1,
            sys_flag=0, commit_offset=0, suspend_timeout_millis=0, sub_version=0,
        )  # fmt: skip
        raw = encode(request_of(call, "root", serialize_type=form))
        guarded.add(Pull, lambda call, peer: None)
        guarded.add_plain([11], plain_pulls, lambda pull, peer: b"messages")
        assert served_plain(guarded, raw) is None
        assert answer(guarded.dispatch(request_of(call, "root"), PEER)).code == 0
        assert served_plain(guarded, raw) == b"messages"

    def test_nothing_else_is_allowed_by_it(self, guarded: GuardedRouter, form: int) -> None:
        good = send_by("alice", form=form)
        for user in ("alice", "bob", "off"):  # bob's key is known, but he may not send
            dispatched(guarded, user)
        for _ in range(2):  # the second time behind one that is allowed, from the same address
            for raw in (
                send_by("alice", "other", form), send_by("bob", form=form),
                send_by(None, form=form), send_by("alice", form=form, secret="guessed"),
                send_by("off", form=form), good[:-1] + b"y", good.replace(b"orders", b"orderz"),
            ):  # fmt: skip
                assert served_plain(guarded, raw) is None
                assert guarded.user in ("", "alice", "root")
            assert served_plain(guarded, good, peer_at("10.0.0.1:1")) is None
            assert served_plain(guarded, good) == b"stored for alice"

    def test_what_is_remembered_of_addresses_is_limited(
        self, guarded: GuardedRouter, form: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.access.guard.ALLOWED_MAX", 1)
        assert dispatched(guarded, "alice") == 0
        for port in (1, 2, 1, 1):
            peer = peer_at(f"127.0.0.1:{port}")
            assert served_plain(guarded, send_by("alice", form=form), peer) == b"stored for alice"

    def test_where_no_policy_is_needed_the_signature_is_enough(self, form: int) -> None:
        rules = AccessRules(cluster="c1", checks_policies=True, open_codes=frozenset({310}))
        router = GuardedRouter(AccessGuard(lambda: TABLES, rules, lambda: 0))
        router.add(Send, lambda call, peer: None)
        router.add_plain([310], plain_sends, lambda send, peer: router.user.encode())
        assert dispatched(router, "bob", "any") == 0
        assert served_plain(router, send_by("bob", "others", form)) == b"bob"
        assert served_plain(router, send_by("bob", form=form, secret="guessed")) is None

    def test_the_short_way_is_closed_until_a_key_is_known(
        self, guarded: GuardedRouter, form: int
    ) -> None:
        raw = send_by("alice", form=form)
        assert not guarded.read_plain(raw, 1 << 24)
        assert answer(guarded.dispatch(decode(send_by(None, form=form)[4:]), PEER)).code
        assert not guarded.read_plain(raw, 1 << 24)
        assert dispatched(guarded, "alice") == 0
        assert guarded.read_plain(raw, 1 << 24)

    def test_changed_users_are_asked_again(
        self, guarded: GuardedRouter, users: list[AccessTables], form: int
    ) -> None:
        raw = send_by("alice", form=form)
        assert dispatched(guarded, "alice") == 0
        users.append(AccessTables(users=TABLES.users))
        assert served_plain(guarded, raw) is None
        assert dispatched(guarded, "alice") == ResponseCode.NO_PERMISSION
        assert served_plain(guarded, raw) is None

    def test_a_signature_that_was_checked_by_an_earlier_key_counts_no_more(
        self, guarded: GuardedRouter, users: list[AccessTables], form: int
    ) -> None:
        assert dispatched(guarded, "alice") == 0
        (send,) = guarded.read_plain(send_by("alice", form=form), 1 << 24)
        users.append(msgspec.structs.replace(TABLES))
        assert dispatched(guarded, "alice") == 0
        assert guarded.serve_plain(send, PEER) is None
        (send,) = guarded.read_plain(send_by("alice", form=form), 1 << 24)
        assert guarded.serve_plain(send, PEER) == b"stored for alice"

    def test_a_code_that_needs_no_user_is_served_for_nobody(self, form: int) -> None:
        rules = AccessRules(cluster="c1", unsigned_codes=frozenset(PLAIN_CODES))
        router = GuardedRouter(AccessGuard(lambda: TABLES, rules, lambda: 0))
        router.add(Send, lambda call, peer: None)
        router.add_plain([310], plain_sends, lambda send, peer: router.user.encode())
        for user in (None, "alice"):
            assert served_plain(router, send_by(user, form=form)) == b""

    def test_a_code_that_needs_no_policy_needs_a_signature_alone(self, form: int) -> None:
        rules = AccessRules(cluster="c1", checks_policies=True, open_codes=frozenset({310}))
        router = GuardedRouter(AccessGuard(lambda: TABLES, rules, lambda: 0))
        router.add(Send, lambda call, peer: None)
        router.add_plain([310], plain_sends, lambda send, peer: router.user.encode())
        assert dispatched(router, "bob") == 0
        assert served_plain(router, send_by("bob", "any", form)) == b"bob"
        assert served_plain(router, send_by("bob", form=form, secret="guessed")) is None
