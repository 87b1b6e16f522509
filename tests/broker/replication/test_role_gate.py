import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
import pytest
from tests.broker.conftest import FakePeer
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker.handlers import HANDLERS
from roquet.broker.replication.fixed_roles import ActingMaster
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.role_gate import (
    HELD_MS_MAX,
    PROGRESS,
    QUEUE_ENDS,
    READS,
    REFUSED,
    RoleGate,
)
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused
from roquet.model.topic import MASTER_ID
from roquet.net.router import Router
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import this_loop
from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode, ResponseCode

pytestmark = pytest.mark.virtual_time

REPLICA = Role(role=BrokerRole.SLAVE, broker_id=1)
FENCED = Role(role=BrokerRole.SLAVE, broker_id=-1, is_fenced=True)

PULL = ask(7, consumer_group="g", sys_flag=0, suspend_timeout_millis=0)


class Stream:
    """A replica's stream, of which a test says what the comparison of the logs found."""

    def __init__(self) -> None:
        self.has_diverged = False
        self.on_compared: list[Callable[[], object]] = []

    def compare(self, *, has_diverged: bool) -> None:
        self.has_diverged = has_diverged
        for callback in self.on_compared:
            callback()


class Gate:
    """A router with a handler for every call of a broker, behind a gate."""

    def __init__(self, role: Role, **settings: Any) -> None:
        self.router = Router()
        for call in HANDLERS:
            self.router.add(call, serve)
        self.role = RoleCell(role)
        self.settings = RuntimeSettings(BrokerConfig(**settings))
        self.acting = ActingMaster(self.settings, self.role)
        self.stream = stream = Stream()
        self.gate = RoleGate(
            self.router, self.settings, self.role, self.acting, cast(StreamClient, stream)
        )
        self.role.on_change.append(self.gate.follow_role)
        self.settings.subscribe(self.gate.refuse_reads, "slave_read_enable")
        for on_change in (self.acting.on_change, stream.on_compared):
            on_change.append(self.gate.refuse_reads)

    def refused(self) -> set[int]:
        """Codes that another handler than its own serves."""
        handlers = self.router.handlers.items()
        return {int(call.code) for call, handler in handlers if handler is not serve}

    def asked(self, code: RequestCode) -> "asyncio.Task[Reply]":
        """The reply to a request, which may be held."""
        handlers = {int(call.code): handler for call, handler in self.router.handlers.items()}
        answer: Any = handlers[code](None, FakePeer())
        return asyncio.create_task(_reply(answer))

    def take_over(self) -> None:
        """Become ready to be the master."""
        self.role.note_taken_over()
        self.gate.open_or_close()


async def _reply(answer: Reply | Coroutine[Any, Any, Reply]) -> Reply:
    return answer if isinstance(answer, Reply) else await answer


def serve(_call: Call[Any], _peer: object) -> Reply:
    return Reply()


def test_a_master_refuses_nothing() -> None:
    assert Gate(Role()).refused() == set()


def test_a_replica_refuses_what_only_a_master_can_do() -> None:
    assert Gate(REPLICA).refused() == {*REFUSED, *READS}
    for served in (
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.HEART_BEAT, RequestCode.GET_MAX_OFFSET, RequestCode.LOCK_BATCH_MQ,
        RequestCode.QUERY_MESSAGE, RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.UPDATE_BROKER_CONFIG,
    ):  # fmt: skip
        assert served not in Gate(REPLICA).refused()


@pytest.mark.parametrize(
    ("code", "answer", "remark"),
    [
        (RequestCode.SEND_MESSAGE, ResponseCode.SYSTEM_BUSY, "REJECTREQUEST.system busy"),
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, "REJECTREQUEST.system busy"),
        (RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SYSTEM_BUSY, "REJECTREQUEST.system busy"),
        (RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_BUSY, "REJECTREQUEST"),
        (RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_BUSY, "REJECTREQUEST"),
        (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE, "ask the master"),
        (RequestCode.RECALL_MESSAGE, ResponseCode.SLAVE_NOT_AVAILABLE, "ask the master"),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResponseCode.SYSTEM_ERROR,
            "Can not reset offset in slave broker",
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, ResponseCode.SYSTEM_ERROR, "at the master"),
        (RequestCode.POP_MESSAGE, ResponseCode.SYSTEM_ERROR, "stores no message of its own"),
    ],
)
def test_a_refusal_says_what_replicas_of_apaches_say(
    code: RequestCode, answer: ResponseCode, remark: str
) -> None:
    gate = Gate(REPLICA)
    handlers = {int(call.code): handler for call, handler in gate.router.handlers.items()}
    with pytest.raises(CallRefused, match=remark) as refused:
        handlers[code](None, FakePeer())
    assert refused.value.code == answer


def test_pulls_are_served_once_the_settings_say_so() -> None:
    gate = Gate(REPLICA)
    gate.settings.change({"slaveReadEnable": "true"}, 0)
    assert gate.refused() == {*REFUSED}
    gate.settings.change({"slaveReadEnable": "false"}, 0)
    assert gate.refused() == {*REFUSED, *READS}
    assert Gate(REPLICA, slave_read_enable=True).refused() == {*REFUSED}


def test_it_closes_with_the_role_and_opens_when_the_broker_is_ready() -> None:
    gate = Gate(Role())
    gate.role.change(REPLICA)
    assert gate.refused() == {*REFUSED, *READS}
    gate.role.change(Role())
    assert gate.refused() >= {*REFUSED, *READS}, "its log is not ready yet"
    gate.take_over()
    assert gate.refused() == set()


def test_a_master_that_does_not_know_whether_it_leads_takes_nothing() -> None:
    assert REFUSED.keys() <= Gate(Role(is_fenced=True)).refused()


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY),
        (RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_BUSY),
        (RequestCode.POP_MESSAGE, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_broker_that_waits_for_its_controller_says_so(
    code: RequestCode, answer: ResponseCode
) -> None:
    gate = Gate(Role(), controller_mode=True, controllers=("c:1",))
    gate.role.change(Role(is_fenced=True))

    def refusal() -> CallRefused:
        handlers: Any = {int(call.code): one for call, one in gate.router.handlers.items()}
        with pytest.raises(CallRefused) as refused:
            handlers[code](None, FakePeer())
        return refused.value

    assert refusal().code == answer
    assert "no controller has granted or prolonged its lease" in str(refusal())
    gate.role.change(REPLICA)
    assert refusal().code == answer
    assert "its lease" not in str(refusal())


def test_pulls_are_served_while_the_replica_acts_as_master() -> None:
    gate = Gate(REPLICA)
    for is_acting, refused in ((True, {*REFUSED}), (False, {*REFUSED, *READS})):
        gate.acting.is_acting = is_acting
        for callback in gate.acting.on_change:
            callback()
        assert gate.refused() == refused


@pytest.mark.parametrize("code", [*READS, *QUEUE_ENDS, PROGRESS])
@pytest.mark.parametrize("slave_read_enable", [False, True])
async def test_a_new_master_holds_who_reads_or_asks_for_offsets_until_its_queues_are_built(
    code: RequestCode, slave_read_enable: bool
) -> None:
    gate = Gate(REPLICA, slave_read_enable=slave_read_enable)
    gate.role.change(Role(is_fenced=True))
    first = gate.asked(code)
    gate.role.change(Role())
    second = gate.asked(code)
    await asyncio.sleep(5)
    assert not first.done()
    assert not second.done()
    gate.take_over()
    assert [(await first).code, (await second).code] == [0, 0]
    assert this_loop().clock.monotonic_ms() == 5_000


async def test_a_held_request_whose_handler_waits_is_answered_when_that_is_ready() -> None:
    async def later(_call: object, _peer: object) -> Reply:
        await asyncio.sleep(1)
        return Reply(remark="later")

    gate = Gate(REPLICA)
    gate.router.replace(RequestCode.PULL_MESSAGE, later)
    gate.role.change(Role())
    held = gate.asked(RequestCode.PULL_MESSAGE)
    await asyncio.sleep(1)
    gate.take_over()
    assert (await held).remark == "later"


@pytest.mark.parametrize("code", [*READS, *QUEUE_ENDS])
async def test_who_is_held_for_long_is_refused(code: RequestCode) -> None:
    gate = Gate(REPLICA)
    gate.role.change(Role())
    with pytest.raises(CallRefused, match="busy"):
        await gate.asked(code)
    assert this_loop().clock.monotonic_ms() == HELD_MS_MAX


async def test_nobody_is_told_that_a_group_has_no_progress() -> None:
    gate = Gate(REPLICA)
    gate.role.change(Role())
    assert (await gate.asked(PROGRESS)).code == 0, "a refusal would send the group to the end"
    gate.role.change(FENCED)
    assert (await gate.asked(PROGRESS)).code == 0


@pytest.mark.parametrize("code", QUEUE_ENDS)
async def test_a_broker_tells_the_ends_of_queues_once_it_knows_its_role(code: RequestCode) -> None:
    gate = Gate(FENCED)
    held = gate.asked(code)
    await asyncio.sleep(5)
    assert not held.done()
    gate.role.change(REPLICA)
    with pytest.raises(CallRefused, match="busy"):  # who asked takes it for the master it was
        await held
    assert (await gate.asked(code)).code == 0


def test_a_master_whose_lease_lapsed_goes_on_to_tell_offsets() -> None:
    gate = Gate(Role())
    gate.role.change(Role(is_fenced=True))
    assert gate.refused() == {*REFUSED, *READS}


async def test_a_stop_releases_who_is_held() -> None:
    gate = Gate(FENCED)
    held = gate.asked(RequestCode.GET_MAX_OFFSET)
    await asyncio.sleep(1)
    gate.gate.release()
    with pytest.raises(CallRefused, match="busy"):
        await held


@pytest.mark.parametrize("code", READS)
def test_a_replica_whose_log_has_diverged_sends_readers_to_the_master(code: RequestCode) -> None:
    gate = Gate(msgspec.structs.replace(REPLICA, master="m:1"), slave_read_enable=True)

    def answer() -> Any:
        (handler,) = (h for call, h in gate.router.handlers.items() if call.code == code)
        return handler(PULL, FakePeer())

    assert gate.refused() == {*REFUSED}
    gate.stream.compare(has_diverged=True)
    reply = answer()
    assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (reply.suggest_which_broker_id, reply.next_begin_offset) == (MASTER_ID, 7)
    gate.role.change(REPLICA)
    with pytest.raises(CallRefused, match="another past than its master") as refused:
        answer()
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    gate.stream.compare(has_diverged=False)
    assert gate.refused() == {*REFUSED}


def test_a_diverged_replica_that_nobody_may_read_from_is_only_busy() -> None:
    gate = Gate(REPLICA)
    gate.stream.compare(has_diverged=True)
    (handler,) = (h for call, h in gate.router.handlers.items() if call.code == READS[0])
    with pytest.raises(CallRefused, match="REJECTREQUEST"):
        handler(PULL, FakePeer())


def test_a_master_that_was_a_diverged_replica_serves_readers() -> None:
    gate = Gate(REPLICA, slave_read_enable=True)
    gate.stream.compare(has_diverged=True)
    gate.role.change(Role())
    gate.take_over()
    assert gate.refused() == set()
