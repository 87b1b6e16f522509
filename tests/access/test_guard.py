"""Requests that are admitted, and those that are refused."""

import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.access.conftest import PEER, SECRETS, TABLES, peer_at, request_of

from roquet.access.gaps import AccessGap
from roquet.access.guard import LOG_PAUSE_MS, AccessGuard, AccessRules
from roquet.model.access import AccessTables, PolicyType, User, UserStatus, UserType
from roquet.model.errors import CallRefused, FieldError
from roquet.net.router import Peer
from roquet.rules.access.changes import change_acl, policy_entry
from roquet.rules.access.decision import AccessRequest, AccessVerdict, decide
from roquet.wire.call import Call
from roquet.wire.calls.access import ListUsers
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.calls.send import Send
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.command import JSON, ROCKETMQ, Command
from roquet.wire.compact import read_pairs, write_pairs
from roquet.wire.fields import decode_call
from roquet.wire.signing import SigningKey, signed_by

pytestmark = pytest.mark.usefixtures("form")

KINDS = [JSON, ROCKETMQ]


def send(topic: str = "orders", body: bytes = b"hi") -> Send:
    return Send(producer_group="pg", topic=topic, queue_id=0, born_timestamp=1, body=body)


def guard_of(tables: AccessTables, *, now: list[int] | None = None, **rules: Any) -> AccessGuard:
    clock = [0] if now is None else now
    checked = AccessRules(cluster="c1", **{"checks_policies": True, **rules})
    return AccessGuard(lambda: tables, checked, lambda: clock[0], {7: "secret"}.get)


@pytest.fixture
def guard() -> AccessGuard:
    return guard_of(TABLES)


def admits(guard: AccessGuard, command: Command, peer: Peer = PEER) -> bool:
    """Whether the guard admits a request; raises its refusal."""
    return guard.admit(command, peer).code == command.code


def remark(guard: AccessGuard, command: Command, peer: Peer = PEER) -> str:
    """The remark of the refusal of a request."""
    with pytest.raises(CallRefused) as refused:
        guard.admit(command, peer)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    return refused.value.remark or ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_signed_request_that_a_policy_allows_is_admitted(guard: AccessGuard, kind: int) -> None:
    command = request_of(send(), "alice", serialize_type=kind)
    assert decode_call(guard.admit(command, PEER), Send) == send()


@pytest.mark.parametrize("kind", KINDS)
def test_strangers_are_refused_in_apaches_words(guard: AccessGuard, kind: int) -> None:
    def refusal(*who: str) -> str:
        return remark(guard, request_of(send(), *who, serialize_type=kind))

    assert refusal() == "username cannot be null."
    assert refusal("eve") == "User:eve is not found."
    assert refusal("off") == "User:off is disabled."
    assert refusal("alice", "guessed") == "check signature failed."


def test_a_name_without_a_signature_is_not_enough(guard: AccessGuard) -> None:
    for fields in ({"AccessKey": "root"}, {"AccessKey": "root", "Signature": ""}):
        command = Command(int(RequestCode.GET_BROKER_CONFIG), fields=fields)
        assert remark(guard, command) == "check signature failed."
    blank = Command(int(RequestCode.GET_BROKER_CONFIG), fields={"AccessKey": ""})
    assert remark(guard, blank) == "username cannot be null."


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_request_that_was_changed_on_its_way_is_refused(
    guard: AccessGuard, data: st.DataObject
) -> None:
    command = request_of(send(), "alice")
    fields = dict(command.ext)
    name = data.draw(st.sampled_from(sorted(fields.keys() - {"AccessKey"})))
    fields[name] += data.draw(st.text("0x", min_size=1, max_size=3))
    changed = replace(command, fields=fields)
    assert remark(guard, changed) == "check signature failed."
    longer = replace(command, body=command.body + b"x")
    assert remark(guard, longer) == "check signature failed."


def test_a_user_may_do_what_his_policies_say_and_from_where(guard: AccessGuard) -> None:
    command = request_of(send("other"), "alice")
    assert remark(guard, command) == (
        "User:alice has no permission to access Topic:other from 127.0.0.1, no matched policies."
    )
    local = request_of(send("local"), "alice")
    assert admits(guard, local)
    assert admits(guard, local, peer_at("[::ffff:127.0.0.1]:9"))
    assert "from 10.0.0.9, no matched policies." in remark(guard, local, peer_at("10.0.0.9:1"))


def test_super_users_may_do_everything_and_others_without_a_policy_nothing(
    guard: AccessGuard,
) -> None:
    assert admits(guard, request_of(GetSettings(), "root"))
    assert "Cluster:c1" in remark(guard, request_of(GetSettings(), "bob"))
    assert "Cluster:c1" in remark(guard, request_of(ListUsers(), "alice"))


def test_a_code_that_nobody_serves_needs_a_user_alone(guard: AccessGuard) -> None:
    call = request_of(GetSettings(), "bob")
    assert guard.admit(replace(call, code=9999), PEER).code == 9999
    assert remark(guard, Command(9999)) == "username cannot be null."


def test_a_change_of_the_tables_counts_from_the_next_request_on() -> None:
    now = [TABLES]
    guard = AccessGuard(lambda: now[0], AccessRules(cluster="c1", checks_policies=True), lambda: 0)
    command = request_of(send(), "alice")
    assert admits(guard, command)
    now[0] = AccessTables(users=TABLES.users)
    assert "no matched policies." in remark(guard, command)
    now[0] = AccessTables()
    assert remark(guard, command) == "User:alice is not found."


ROOT = TABLES.users["root"]
ALICE = TABLES.users["alice"]


@pytest.mark.parametrize(
    ("user", "call", "changed", "refusal"),
    [
        ("root", GetSettings(), replace(ROOT, user_type=UserType.NORMAL), "Cluster:c1"),
        ("root", send("any"), replace(ROOT, user_type=UserType.NORMAL), "Topic:any"),
        ("root", send(), replace(ROOT, password="new"), "check signature failed."),
        ("root", send(), replace(ROOT, status=UserStatus.DISABLE), "User:root is disabled."),
        ("alice", send(), replace(ALICE, password="new"), "check signature failed."),
        ("alice", send(), replace(ALICE, status=UserStatus.DISABLE), "User:alice is disabled."),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_of_a_user_ends_with_any_change_of_him(
    user: str, call: Call[Any], changed: User, refusal: str, kind: int
) -> None:
    now = [TABLES]
    guard = AccessGuard(lambda: now[0], AccessRules(cluster="c1", checks_policies=True), lambda: 0)
    command = request_of(call, user, serialize_type=kind)
    for _ in range(3):
        assert admits(guard, command)
    now[0] = replace(TABLES, users={**TABLES.users, user: changed})
    assert refusal in remark(guard, command)
    now[0] = TABLES
    assert admits(guard, command)


@pytest.mark.parametrize("decision", ["Allow", "Deny"])
def test_what_is_remembered_of_a_policy_ends_with_any_change_of_it(decision: str) -> None:
    now = [TABLES]
    guard = AccessGuard(lambda: now[0], AccessRules(cluster="c1", checks_policies=True), lambda: 0)
    command = request_of(send(), "alice")
    for _ in range(3):
        assert admits(guard, command)
    elsewhere = ["10.0.0.0/8"] if decision == "Allow" else None
    entry = policy_entry("Topic:orders", ["Pub"], elsewhere, decision)
    users = AccessTables(users=TABLES.users)
    now[0] = change_acl(users, "alice", [(PolicyType.CUSTOM, [entry])])
    assert "no permission to access Topic:orders from 127.0.0.1" in remark(guard, command)


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_body_decides_each_one_is_looked_at(kind: int) -> None:
    entry = policy_entry("Group:own", ["Sub"], None, "Allow")
    guard = guard_of(change_acl(TABLES, "alice", [(PolicyType.CUSTOM, [entry])]))

    def beat(user: str, group: bytes) -> Command:
        body = b'{"clientID":"c","consumerDataSet":[{"groupName":"%s"}]}' % group
        return request_of(Heartbeat(body=body), user, serialize_type=kind)

    for _ in range(3):
        assert admits(guard, beat("alice", b"own"))
        assert "Group:other" in remark(guard, beat("alice", b"other"))
        assert admits(guard, beat("root", b"other"))


def test_without_policies_a_signature_is_enough() -> None:
    guard = guard_of(TABLES, checks_policies=False)
    assert admits(guard, request_of(GetSettings(), "bob"))
    assert remark(guard, request_of(GetSettings())) == "username cannot be null."


def test_open_codes_are_not_checked() -> None:
    code = frozenset({int(RequestCode.GET_BROKER_CONFIG)})
    unsigned, open_ = guard_of(TABLES, unsigned_codes=code), guard_of(TABLES, open_codes=code)
    assert admits(unsigned, request_of(GetSettings()))
    assert admits(open_, request_of(GetSettings(), "bob"))
    assert remark(open_, request_of(GetSettings())) == "username cannot be null."


def test_what_apaches_broker_leaves_unchecked_is_open_only_on_request() -> None:
    compatible = guard_of(TABLES, gaps=(AccessGap.CODES,))
    assert admits(compatible, request_of(GetSettings(), "bob"))
    assert "no matched policies." in remark(compatible, request_of(send(), "bob"))
    assert "Cluster:c1" in remark(guard_of(TABLES), request_of(GetSettings(), "bob"))


def test_a_message_is_seen_only_by_who_may_see_its_topic(guard: AccessGuard) -> None:
    command = request_of(ViewMessage(offset=7), "alice")
    assert "Topic:secret" in remark(guard, command)
    assert admits(guard_of(guard.tables, gaps=(AccessGap.MESSAGES,)), command)
    assert "Topic:secret" in remark(guard_of(guard.tables, gaps=(AccessGap.CODES,)), command)


def test_handlers_see_the_fields_that_were_checked(guard: AccessGuard) -> None:
    command = request_of(send(), "alice")
    twice = bytes(command.fields).replace(b'{"', b'{"b":"other","', 1)  # type: ignore[arg-type]
    for _ in range(2):
        admitted = guard.admit(replace(command, fields=msgspec.Raw(twice)), PEER)
        assert decode_call(admitted, Send).topic == "orders"
    later = bytes(command.fields).replace(b'"}', b'","b":"other"}')  # type: ignore[arg-type]
    changed = replace(command, fields=msgspec.Raw(later))
    assert remark(guard, changed) == "check signature failed."


@pytest.mark.parametrize("kind", KINDS)
def test_requests_of_a_known_key_pass_as_they_came(guard: AccessGuard, kind: int) -> None:
    first = request_of(send(body=b"one"), "alice", serialize_type=kind)
    assert guard.admit(first, PEER).ext == first.ext
    for topic in ("orders", "local", "local"):
        command = request_of(send(topic, b"two"), "alice", serialize_type=kind)
        assert guard.admit(command, PEER) is command
    assert guard.user == "alice"
    assert remark(guard, request_of(send())) == "username cannot be null."
    assert guard.user == ""


def test_what_is_remembered_of_allowed_requests_is_bounded(
    guard: AccessGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.access.guard.ALLOWED_MAX", 3)
    decided = list[str]()

    def noted(tables: AccessTables, name: str, request: AccessRequest, ip: str) -> AccessVerdict:
        decided.append(ip)
        return decide(tables, name, request, ip)

    monkeypatch.setattr("roquet.access.guard.decide", noted)
    command = request_of(send(), "alice")
    for number in (0, 1, 2, 0, 3, 0):
        guard.admit(command, peer_at(f"10.0.0.{number}:1"))
    assert decided == [f"10.0.0.{number}" for number in (0, 1, 2, 3, 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_header_of_many_names_is_left_to_the_whole_check(guard: AccessGuard, kind: int) -> None:
    command = request_of(send(), "alice", serialize_type=kind)
    many = {f"{number:05}": "v" for number in range(5_000)}
    fields = b"{" + ",".join(f'"{name}":"{value}"' for name, value in many.items()).encode() + b"}"
    long = replace(command, fields=msgspec.Raw(fields))
    assert signed_by(long.fields, b"", {"alice": SigningKey(SECRETS["alice"])}, ()) is None
    assert remark(guard, long) == "username cannot be null."


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_was_changed_is_refused_behind_others_that_were_allowed(
    guard: AccessGuard, kind: int
) -> None:
    command = request_of(send(), "alice", serialize_type=kind)
    assert admits(guard, command)
    fields = dict(command.ext)
    for name in fields.keys() - {"AccessKey"}:
        for value in ("", fields[name][:-1], fields[name] + "0"):
            changed = fields | {name: value}
            if value != fields[name] and (value or kind == JSON):
                given = received(changed, kind)
                assert "check signature failed." in remark(guard, given(command))
    assert "check signature failed." in remark(
        guard, replace(command, body=command.body + b"x"), PEER
    )
    for stranger in ("bob", "root"):  # whose keys are others
        given = received(fields | {"AccessKey": stranger}, kind)
        assert "check signature failed." in remark(guard, given(command))
    assert admits(guard, command)


def received(fields: dict[str, str], kind: int) -> Callable[[Command], Command]:
    """Gives a command these fields, as they are received."""
    if kind == JSON:
        raw = msgspec.Raw(json.dumps(fields, separators=(",", ":")).encode())
        return lambda command: replace(command, fields=raw)
    packed = read_pairs(write_pairs(fields))
    return lambda command: replace(command, fields=packed)


@pytest.mark.parametrize("kind", KINDS)
def test_characters_that_move_between_fields_keep_the_signature_and_change_the_decision(
    guard: AccessGuard, kind: int
) -> None:
    command = request_of(send("orders"), "alice", serialize_type=kind)
    assert admits(guard, command)
    fields = dict(command.ext)  # signed is "…" + group + topic + default topic + "…"
    moved = received(fields | {"a": fields["a"] + "o", "b": "rders"}, kind)
    for _ in range(2):
        assert "to access Topic:rders from" in remark(guard, moved(command))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.integers(0, 47), min_size=1, max_size=8))
def test_a_guard_that_remembers_decides_like_one_that_has_seen_nothing(order: list[int]) -> None:
    calls = [send("orders"), send("local"), send("other"), GetSettings()]
    whose = [("alice", None), ("alice", "guessed"), ("root", None)]
    peers = [peer_at("127.0.0.1:1"), peer_at("10.0.0.9:1")]
    cases = list(itertools.product(calls, whose, peers, KINDS))
    guard = guard_of(TABLES)
    for call, (user, secret), peer, kind in (cases[index] for index in order):
        command = request_of(call, user, secret, serialize_type=kind)
        assert outcome(guard, command, peer) == outcome(guard_of(TABLES), command, peer)


def outcome(guard: AccessGuard, command: Command, peer: Peer) -> object:
    """The fields that a handler gets, and the user; or the remark of the refusal."""
    try:
        return guard.admit(command, peer).ext, guard.user
    except CallRefused as refusal:
        return refusal.remark


def test_handlers_see_the_user_who_was_admitted(guard: AccessGuard) -> None:
    signed = guard.admit(request_of(ListUsers(), "root"), PEER)
    assert decode_call(signed, ListUsers).access_key == "root"
    assert guard.user == "root"
    named = Command(int(ListUsers.code), fields={"AccessKey": "root", "Signature": "x"})
    unsigned = guard_of(TABLES, unsigned_codes=frozenset({int(ListUsers.code)}))
    assert decode_call(unsigned.admit(named, PEER), ListUsers).access_key is None
    assert unsigned.user == ""


@pytest.mark.parametrize(("version", "admitted"), [(399, False), (400, True)])
def test_older_clients_do_not_sign_the_mark_of_a_unique_key(
    guard: AccessGuard, version: int, admitted: bool
) -> None:
    call = QueryByKey(
        topic="t", key="k", max_num=1, begin_timestamp=0, end_timestamp=1, unique_key=True
    )
    command = request_of(call, "root", version=version)
    if admitted:
        assert admits(guard, command)
    else:
        assert remark(guard, command) == "check signature failed."


def test_an_unreadable_header_is_an_error(guard: AccessGuard) -> None:
    with pytest.raises(FieldError):
        guard.admit(Command(26, fields=msgspec.Raw(b"[1]")), PEER)
    assert remark(guard, Command(26, fields=msgspec.Raw(b"null"))) == ("username cannot be null.")


def test_the_same_refusal_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [LOG_PAUSE_MS]
    guard = guard_of(TABLES, now=now)
    for _ in range(3):
        remark(guard, request_of(send(), "alice", "guessed"))
    assert caplog.messages == ["refused code 310 from 127.0.0.1: check signature failed."]
    now[0] += LOG_PAUSE_MS
    remark(guard, request_of(send(), "alice", "guessed"))
    assert len(caplog.messages) == 2


def test_strangers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    guard = guard_of(TABLES)
    for number in range(300):
        remark(guard, request_of(GetSettings(), f"u{number}"))
    assert len(caplog.messages) == 256
