"""A router behind a guard."""

import logging

import msgspec
import pytest
from tests.net.access.conftest import Request

from roquet.model.access import AccessTables
from roquet.net.access.guard import AccessGuard, AccessRules
from roquet.net.access.guarded_router import GuardedRouter
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command, decode


@pytest.fixture
def served() -> list[GetSettings]:
    """The calls that the handler has got."""
    return []


@pytest.fixture
def router(tables: AccessTables, served: list[GetSettings]) -> GuardedRouter:
    rules = AccessRules(cluster="c1", checks_policies=True)
    router = GuardedRouter(AccessGuard(lambda: tables, rules, lambda: 0))

    def handler(call: GetSettings, _peer: Peer) -> Reply:
        served.append(call)
        return Reply()

    router.add(GetSettings, handler)
    return router


def answer(frame: object) -> Command:
    assert isinstance(frame, bytes)
    return decode(frame[4:])


def test_an_admitted_request_is_served(
    router: GuardedRouter, served: list[GetSettings], request_of: Request, peer: Peer
) -> None:
    assert answer(router.dispatch(request_of(GetSettings(), "root"), peer)).code == 0
    assert len(served) == 1
    assert router.user == "root"


def test_a_refused_request_never_gets_to_its_handler(
    router: GuardedRouter, served: list[GetSettings], request_of: Request, peer: Peer
) -> None:
    reply = answer(router.dispatch(request_of(GetSettings()), peer))
    assert (reply.code, reply.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
    assert (reply.opaque, reply.ext, reply.body) == (7, {}, b"")
    assert router.dispatch(request_of(GetSettings(), oneway=True), peer) is None
    assert served == []


def test_a_code_without_a_handler_is_refused_to_strangers_first(
    router: GuardedRouter, request_of: Request, peer: Peer
) -> None:
    unknown = msgspec.structs.replace(request_of(GetSettings(), "bob"), code=9999)
    reply = answer(router.dispatch(unknown, peer))
    assert (reply.code, reply.remark) == (3, " request type 9999 not supported")
    assert answer(router.dispatch(Command(9999), peer)).code == ResponseCode.NO_PERMISSION


def test_a_guard_that_fails_admits_nobody(
    served: list[GetSettings],
    request_of: Request,
    peer: Peer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> AccessTables:
        raise RuntimeError("no tables")

    router = GuardedRouter(AccessGuard(broken, AccessRules(cluster="c1"), lambda: 0))
    router.add(GetSettings, lambda call, _: served.append(call))
    with caplog.at_level(logging.ERROR):
        reply = answer(router.dispatch(request_of(GetSettings(), "root"), peer))
    assert (reply.code, served) == (ResponseCode.SYSTEM_ERROR, [])
    assert caplog.messages == [f"the check of code {int(GetSettings.code)} failed"]
