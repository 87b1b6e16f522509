"""What operators ask of clients: at this proxy, at another one, and of remoting clients."""

import asyncio
from typing import Any

from tests.proxy.admin.conftest import Operator, resource
from tests.proxy.conftest import User, consumer_settings
from tests.proxy.handlers.test_members import another

from roquet.client import ConsumerConfig, PushConsumer
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.calls.admin.client_forwarding import QueueInfo, TopicRates


async def answer(user: User, code: Any = pb.OK) -> None:
    """Answer a client's next command."""
    await asyncio.sleep(0.1)
    command = user.told.pop(0)
    if command.HasField("verify_message_command"):
        nonce = command.verify_message_command.nonce
        result = service.VerifyMessageResult(nonce=nonce)
        status = pb.Status(code=code, message="so")
        user.say(service.TelemetryCommand(status=status, verify_message_result=result))
    else:
        nonce = command.print_thread_stack_trace_command.nonce
        trace = service.ThreadStackTrace(nonce=nonce, thread_stack_trace="main at x.py:1")
        user.say(service.TelemetryCommand(thread_stack_trace=trace))


async def test_a_client_is_asked_at_this_proxy_and_at_another_one(
    running: Cluster, proxy: Proxy, operator: Operator
) -> None:
    async with another(running) as second:
        for user in (User(proxy, "here"), User(second, "there")):
            client_id = user.metadata["x-mq-client-id"]
            async with user.telemetry(consumer_settings()):
                await asyncio.sleep(2)
                call = admin.PrintThreadStackTraceRequest(group=resource("g"), client_id=client_id)
                found, _ = await asyncio.gather(
                    operator.ok("PrintThreadStackTrace", call), answer(user)
                )
                assert found.thread_stack_trace == "main at x.py:1"
                request = admin.GetConsumerRunningInfoRequest(
                    group=resource("g"), client_id=client_id
                )
                info = (await operator.ok("GetConsumerRunningInfo", request)).consumer_running_info
                assert info.subscriptions["NORM"].expression == "*"
                assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_POP"


async def test_a_client_handles_a_message_for_an_operator(
    running: Cluster, proxy: Proxy, operator: Operator
) -> None:
    async with another(running) as second:
        for user in (User(proxy, "here"), User(second, "there")):
            client_id = user.metadata["x-mq-client-id"]
            await user.send("NORM", b"x", message_id=f"ID-{client_id}")
            call = admin.VerifyMessageRequest(
                group=resource("g"),
                topic=resource("NORM"),
                client_id=client_id,
                message_id=f"ID-{client_id}",
            )
            async with user.telemetry(consumer_settings()):
                await asyncio.sleep(2)
                await asyncio.gather(operator.ok("VerifyMessage", call), answer(user))
                failed, _ = await asyncio.gather(
                    operator("VerifyMessage", call), answer(user, pb.FAILED_TO_CONSUME_MESSAGE)
                )
            assert failed.status.code == pb.FAILED_TO_CONSUME_MESSAGE
            assert failed.status.message == "the client's result is CR_LATER: so"
    call.message_id = "unknown"
    assert (await operator("VerifyMessage", call)).status.code == pb.MESSAGE_NOT_FOUND


async def test_a_remoting_client_tells_its_queues_and_rates(
    running: Cluster, operator: Operator
) -> None:
    config = ConsumerConfig(clock=this_loop().clock, instance="i")
    async with PushConsumer(
        running.namesrv_addr, group="g", topic="NORM", config=config
    ) as consumer:
        await asyncio.sleep(5)
        request = admin.ListConsumerConnectionRequest(group=resource("g"))
        (one,) = (await operator.ok("ListConsumerConnection", request)).client_info
        call = admin.GetConsumerRunningInfoRequest(group=resource("g"), client_id=one.client_id)
        info = (await operator.ok("GetConsumerRunningInfo", call)).consumer_running_info
        assert consumer is not None
    assert (one.language, one.version) == ("PYTHON", "5.5.0")
    assert len(info.message_queue_table) >= 4
    assert info.consume_status_table["NORM"].consume_failed_msgs == 0
    held = [one.process_queue_info for one in info.message_queue_table]
    assert {one.last_pull_timestamp > 0 for one in held} == {True}


async def test_a_client_that_is_not_connected_is_not_found(operator: Operator) -> None:
    call = admin.PrintThreadStackTraceRequest(group=resource("g"), client_id="nobody")
    answered = await operator("PrintThreadStackTrace", call)
    assert answered.status.code == pb.NOT_FOUND
    assert "client 'nobody' is not connected" in answered.status.message


def test_states_of_queues_and_rates_have_the_fields_of_the_protocol_in_order() -> None:
    for kind, struct, renamed in (
        (
            admin.ProcessQueueInfo,
            QueueInfo,
            {"cached_size": "cached_msg_size_in_mib", "droped": "dropped"},
        ),
        (
            admin.ConsumeStatus,
            TopicRates,
            {
                "pull_ms": "receive_rt",
                "pulled": "receive_tps",
                "handle_ms": "consume_rt",
                "handled": "consume_ok_tps",
                "failed": "consume_failed_tps",
                "failed_in_all": "consume_failed_msgs",
            },
        ),
    ):
        ours = [renamed.get(name, name) for name in struct.__struct_fields__]
        assert ours == [field.name for field in kind.DESCRIPTOR.fields]
