"""Which requests wait together, and how many."""

from typing import Any

import msgspec
import pytest

from roquet.broker.admission import KINDS, Admission, RequestQuotas, limits_of
from roquet.broker.handlers import HANDLERS
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.config_file import read
from roquet.rules.admission import AdmissionLimits
from roquet.rules.quota import QuotaDirection, QuotaSubject, parse_quotas
from roquet.wire.call import Call
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.offset import QueryOffset
from roquet.wire.calls.pop import Ack, Pop
from roquet.wire.calls.pull import LitePull, Pull
from roquet.wire.calls.query import QueryByKey
from roquet.wire.calls.send import Send, SendBack, SendBatch

SUBJECT = QuotaSubject(user="", topic="orders", client="")


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        ((Send, SendBatch, SendBack), "send"),
        ((Pull, LitePull, Pop), "pull"),
        ((Ack,), "ack"),
        ((Heartbeat,), "heartbeat"),
        ((QueryByKey,), "query"),
        ((QueryOffset,), "admin"),
    ],
)
def test_requests_of_a_kind_share_a_gate(calls: tuple[type[Call[Any]], ...], kind: str) -> None:
    admission = Admission(BrokerConfig())
    assert {admission.gate(call) for call in calls} == {admission.gates[kind]}


def test_every_call_has_a_gate_and_every_kind_a_call() -> None:
    admission = Admission(BrokerConfig())
    assert {admission.gate(call) for call in HANDLERS} <= set(admission.gates.values())
    assert {*KINDS.values(), "admin"} == set(admission.gates)


def test_the_limits_are_those_of_apache() -> None:
    assert limits_of(BrokerConfig()) == {
        "send": AdmissionLimits(count=10_000, wait_ms=200),
        "pull": AdmissionLimits(count=100_000, wait_ms=5_000),
        "ack": AdmissionLimits(count=100_000, wait_ms=3_000),
        "heartbeat": AdmissionLimits(count=50_000, wait_ms=31_000),
        "transaction": AdmissionLimits(count=100_000, wait_ms=3_000),
        "query": AdmissionLimits(count=20_000),
        "admin": AdmissionLimits(count=10_000, wait_ms=5_000),
    }


def test_the_limits_follow_the_settings_also_later() -> None:
    admission = Admission(BrokerConfig())
    admission.configure(read("sendThreadPoolQueueCapacity=7\nwaitTimeMillsInSendQueue=900", "", {}))
    assert admission.gates["send"].limits == AdmissionLimits(count=7, wait_ms=900)


def test_requests_are_not_refused_for_waiting_without_fast_failure() -> None:
    by_kind = limits_of(read("brokerFastFailureEnable=false", "", {}))
    assert {limits.wait_ms for limits in by_kind.values()} == {None}


def with_quotas(text: str) -> BrokerConfig:
    return BrokerConfig(quotas=parse_quotas(text, "quotas"))


def test_quotas_follow_the_settings() -> None:
    quotas = RequestQuotas(BrokerConfig())
    assert all(buckets.is_empty for buckets in quotas.buckets.values())
    config = with_quotas("topic:* send 1/s")
    quotas.configure(config)
    quotas.buckets[QuotaDirection.SEND].charge(SUBJECT, 2, 0, 0)
    quotas.configure(msgspec.structs.replace(config, auto_create_topic=False))
    excess = quotas.buckets[QuotaDirection.SEND].excess(SUBJECT, 0)
    assert excess is not None
    quotas.note(excess)
    quotas.note(excess)
    assert quotas.excesses == {("send", "topic", "*"): 2}
