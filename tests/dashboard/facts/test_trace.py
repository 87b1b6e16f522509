import pytest

from roquet.admin.client import AdminClient
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.facts.trace import steps_of, trace_of
from roquet.model.errors import UsageError
from roquet.testing.cluster import cluster
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    RecallTrace,
    SendTrace,
    TransactionTrace,
)

SENT = SendTrace(
    at_ms=10, group="shop", topic="orders", message_id="M", store_host="10.0.0.1:10911", took_ms=3
)


def test_a_send_and_two_tries_come_in_order_of_time() -> None:
    steps = steps_of(
        "M",
        [
            ConsumeEndTrace(request_id="r2", message_id="M", took_ms=5),
            ConsumeStartTrace(at_ms=30, group="billing", request_id="r2", message_id="M", tries=1),
            ConsumeStartTrace(at_ms=20, group="billing", request_id="r1", message_id="M"),
            ConsumeEndTrace(
                request_id="r1",
                message_id="M",
                took_ms=7,
                success=False,
                outcome=ConsumeReturnType.RAISED,
            ),
            SENT,
        ],
    )
    assert [(step.event, step.took_ms, step.success) for step in steps] == [
        ("sent", 3, True),
        ("raised an error, try 1", 7, False),
        ("handled, try 2", 5, True),
    ]
    assert steps[0].detail == "to 10.0.0.1:10911"


def test_a_handler_that_has_not_reported_is_shown_as_open() -> None:
    (step,) = steps_of("M", [ConsumeStartTrace(at_ms=1, request_id="r", message_id="M")])
    assert (step.event, step.success) == ("handler runs, or never reported, try 1", None)


def test_an_end_without_its_start_is_shown_by_itself() -> None:
    (step,) = steps_of("M", [ConsumeEndTrace(request_id="r", message_id="M", outcome=9)])
    assert step.event == "ended with 9"


def test_transactions_and_recalls_are_steps_and_other_messages_are_not() -> None:
    steps = steps_of(
        "M",
        [
            TransactionTrace(
                at_ms=1, topic="t", message_id="M", state="COMMIT_MESSAGE", from_check=True
            ),
            RecallTrace(at_ms=2, topic="t", message_id="M"),
            SendTrace(at_ms=3, topic="t", message_id="other"),
        ],
    )
    assert [(step.event, step.detail) for step in steps] == [
        ("transaction: COMMIT_MESSAGE", "after a check"),
        ("recalled", ""),
    ]


async def test_tracing_that_is_off_is_said_so() -> None:
    async with cluster() as running, AdminClient(running.namesrv_addr) as admin:
        with pytest.raises(UsageError, match="tracing is off: no broker has the topic RMQ_SYS_TR"):
            await trace_of(admin, "0" * 32)


async def test_the_trace_that_a_producer_wrote_is_found_by_the_message_id() -> None:
    async with cluster(trace_topic=True, default_queue_count=1) as running:
        async with Producer(running.namesrv_addr, config=ProducerConfig(trace=True)) as producer:
            receipt = await producer.send("orders", b"1")
        async with AdminClient(running.namesrv_addr) as admin:
            (step,) = await trace_of(admin, receipt.message_id)
            assert step.event == "sent"
            assert await trace_of(admin, "0" * 32) == []
