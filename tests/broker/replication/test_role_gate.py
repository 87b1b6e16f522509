from typing import Any

import pytest
from tests.broker.conftest import FakePeer

from roquet.broker.handlers import HANDLERS
from roquet.broker.replication.acting_master import ActingMaster
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.role_gate import READS, REFUSED, RoleGate
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused
from roquet.net.router import Router
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode, ResponseCode

REPLICA = Role(role=BrokerRole.SLAVE, broker_id=1)


class Gate:
    """A router with a handler for every call of a broker, behind a gate."""

    def __init__(self, role: Role, **settings: Any) -> None:
        self.router = Router()
        for call in HANDLERS:
            self.router.add(call, serve)
        self.role = RoleCell(role)
        self.settings = RuntimeSettings(BrokerConfig(**settings))
        self.gate = RoleGate(self.router, self.settings, self.role)

    def refused(self) -> set[int]:
        """Codes that another handler than its own serves."""
        handlers = self.router.handlers.items()
        return {int(call.code) for call, handler in handlers if handler is not serve}


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
    gate: Any = Gate(REPLICA)
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
    assert gate.refused() == {*REFUSED, *READS}, "its log is not ready yet"
    gate.gate.follow_role()
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
    acting = ActingMaster(gate.settings, gate.role)
    RoleGate(gate.router, gate.settings, gate.role, acting)
    for is_acting, refused in ((True, {*REFUSED}), (False, {*REFUSED, *READS})):
        acting.is_acting = is_acting
        for callback in acting.on_change:
            callback()
        assert gate.refused() == refused
