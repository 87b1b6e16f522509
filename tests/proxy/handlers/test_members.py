"""Members of gRPC clients, as operators see and ask them through the brokers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.proxy.conftest import User, consumer_settings, stored

from roquet.admin import groups
from roquet.admin.client import AdminClient, without_answers
from roquet.client import ClientConfig, ConsumerConfig, PushConsumer
from roquet.model.errors import CallRefused
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.calls.admin.client_forwarding import (
    ConsumeDirectly,
    ConsumeDirectlyResult,
    ConsumeResult,
    GetRunningInfo,
    RunningInfo,
)
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.bodies import ConsumerConnection, ConsumerIdList
from roquet.wire.calls.heartbeat import GetConsumers
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.fastjson import codec


@pytest.fixture
async def admin(running: Cluster) -> AsyncIterator[AdminClient]:
    config = ClientConfig(clock=this_loop().clock, timeout_ms=20_000)
    async with AdminClient(running.namesrv_addr, config) as opened:
        yield opened


async def ask(admin: AdminClient, call: Any) -> Any:
    (address,) = (await admin.brokers()).values()
    return (await admin.ask(address, call)).body


async def connections(admin: AdminClient, group: str = "g") -> list[str]:
    """Ids of a group's members, as Apache's tools get them; empty when none is online."""
    brokers = await admin.brokers()
    found, failed = await admin.ask_each(brokers, GetConnections(consumer_group=group))
    assert not without_answers(failed, ResponseCode.CONSUMER_NOT_ONLINE)
    answers = [codec.loads(reply.body, ConsumerConnection) for reply in found.values()]
    return [one.client_id for answer in answers for one in answer.connection_set]


async def known(proxy: Proxy) -> None:
    """Wait until the broker has heard of the proxy."""
    await asyncio.sleep(2)


@asynccontextmanager
async def another(running: Cluster) -> AsyncIterator[Proxy]:
    made = Proxy(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    made.start()
    yield made
    await made.close()


async def test_a_member_is_listed_with_its_language_version_and_subscriptions(
    proxy: Proxy, admin: AdminClient
) -> None:
    settings = consumer_settings()
    settings.client_properties["app"] = "billing"
    async with User(proxy).telemetry(settings):
        await known(proxy)
        info = await groups.show(admin, "g")
        assert info.members is not None
        (member,) = info.members
    assert (member.client_id, member.address) == ("user", "10.0.0.7:4711")
    assert (member.language, member.version) == ("PYTHON", 437)
    assert member.subscriptions == {"NORM": "*"}
    assert member.release == "5.1.2"
    assert member.properties == {"app": "billing"}
    assert (info.consume_type, info.message_model) == ("CONSUME_POP", "CLUSTERING")
    assert info.problems == []


@pytest.mark.parametrize(
    ("said", "agent", "language", "version"),
    [
        ("HTTP", pb.NODE_JS, Language.NODE_JS, "1.0.8"),
        ("GO", pb.GOLANG, Language.GO, "5.1.3"),
        ("COBOL", pb.LANGUAGE_UNSPECIFIED, Language.OTHER, "newest"),
    ],
)
async def test_any_language_and_version_can_be_listed(
    proxy: Proxy, admin: AdminClient, said: str, agent: Any, language: Language, version: str
) -> None:
    settings = consumer_settings()
    settings.user_agent.language = agent
    headers = {"x-mq-language": said, "x-mq-client-version": version}
    async with User(proxy, **headers).telemetry(settings):
        await known(proxy)
        body = codec.loads(await ask(admin, GetConnections(consumer_group="g")), ConsumerConnection)
    assert body.connection_set[0].language is language
    assert body.connection_set[0].version == {"5.1.3": 439}.get(version, 513)


async def test_a_member_that_leaves_is_not_listed_any_more(
    proxy: Proxy, admin: AdminClient
) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        await known(proxy)
        assert await connections(admin) == ["user"]
        request = service.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
        await user.call("NotifyClientTermination", request)
        assert await connections(admin) == []


async def test_a_member_whose_stream_has_broken_is_not_listed_any_more(
    proxy: Proxy, admin: AdminClient
) -> None:
    async with User(proxy).telemetry(consumer_settings()):
        await known(proxy)
        assert await connections(admin) == ["user"]
    assert await connections(admin) == []


async def test_a_member_whose_settings_name_another_group_is_in_that_one(
    proxy: Proxy, admin: AdminClient
) -> None:
    async with User(proxy).telemetry(consumer_settings()):
        await known(proxy)
        async with User(proxy).telemetry(consumer_settings("other")):
            assert await connections(admin) == []
            assert await connections(admin, "other") == ["user"]


async def test_members_at_several_proxies_are_listed_together_until_a_proxy_has_gone(
    running: Cluster, proxy: Proxy, admin: AdminClient
) -> None:
    async with User(proxy, "a").telemetry(consumer_settings()):
        async with another(running) as second, User(second, "b").telemetry(consumer_settings()):
            await known(second)
            assert await connections(admin) == ["a", "b"]
        await asyncio.sleep(1)
        assert await connections(admin) == ["a"]


async def test_remoting_members_divide_queues_among_themselves(
    running: Cluster, proxy: Proxy, admin: AdminClient
) -> None:
    config = ConsumerConfig(clock=this_loop().clock)
    async with (
        User(proxy).telemetry(consumer_settings()),
        PushConsumer(running.namesrv_addr, group="g", topic="NORM", config=config) as consumer,
    ):
        await known(proxy)
        assert len(await connections(admin)) == 2
        body = await ask(admin, GetConsumers(consumer_group="g"))
        assert len(codec.loads(body, ConsumerIdList).consumer_id_list) == 1
        info = await groups.show(admin, "g")
        assert any("in different ways" in problem for problem in info.problems)
        assert consumer is not None


def answering(
    user: User, reply: Callable[[service.TelemetryCommand], service.TelemetryCommand]
) -> Callable[[], Awaitable[None]]:
    """Work that answers the next command of a client."""

    async def answer() -> None:
        await asyncio.sleep(0.1)  # of virtual time: the command has come
        user.say(reply(user.told.pop(0)))

    return answer


async def test_an_operator_gets_the_stacks_of_a_member(proxy: Proxy, admin: AdminClient) -> None:
    user = User(proxy)
    call = GetRunningInfo(consumer_group="g", client_id="user", jstack_enable=True)

    def reply(command: service.TelemetryCommand) -> service.TelemetryCommand:
        nonce = command.print_thread_stack_trace_command.nonce
        trace = service.ThreadStackTrace(nonce=nonce, thread_stack_trace="main at x.py:1")
        return service.TelemetryCommand(thread_stack_trace=trace)

    async with user.telemetry(consumer_settings()):
        await known(proxy)
        body, _ = await asyncio.gather(ask(admin, call), answering(user, reply)())
    info = codec.loads(body, RunningInfo)
    assert info.jstack == "main at x.py:1"
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_POP"
    assert info.properties["PROP_CLIENT_VERSION"] == "V5_1_2"
    assert [one.topic for one in info.subscription_set] == ["NORM"]


async def test_a_member_is_not_asked_for_what_the_proxy_knows(
    proxy: Proxy, admin: AdminClient
) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        await known(proxy)
        body = await ask(admin, GetRunningInfo(consumer_group="g", client_id="user"))
        assert user.told == []
    assert codec.loads(body, RunningInfo).jstack is None


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (pb.OK, ConsumeResult.CR_SUCCESS),
        (pb.FAILED_TO_CONSUME_MESSAGE, ConsumeResult.CR_LATER),
        (pb.MESSAGE_CORRUPTED, ConsumeResult.CR_RETURN_NULL),
        (pb.VERIFY_FIFO_MESSAGE_UNSUPPORTED, ConsumeResult.CR_THROW_EXCEPTION),
    ],
)
async def test_one_member_handles_one_message_for_an_operator(
    running: Cluster, proxy: Proxy, admin: AdminClient, code: Any, result: ConsumeResult
) -> None:
    user, bystander = User(proxy), User(proxy, "bystander")
    await user.send("NORM", b"the body")
    (message,) = await stored(running, "NORM")
    call = ConsumeDirectly(
        consumer_group="g", client_id="user", topic="NORM", msg_id=message.offset_message_id
    )

    def reply(command: service.TelemetryCommand) -> service.TelemetryCommand:
        asked = command.verify_message_command
        assert asked.message.body == b"the body"
        return service.TelemetryCommand(
            status=pb.Status(code=code, message="so"),
            verify_message_result=service.VerifyMessageResult(nonce=asked.nonce),
        )

    async with (
        bystander.telemetry(consumer_settings()),
        user.telemetry(consumer_settings()),
    ):
        await known(proxy)
        body, _ = await asyncio.gather(ask(admin, call), answering(user, reply)())
        assert bystander.told == []
    found = codec.loads(body, ConsumeDirectlyResult)
    assert (found.consume_result, found.remark) == (result, "so")


async def test_a_client_that_does_not_answer_is_named(proxy: Proxy, admin: AdminClient) -> None:
    user = User(proxy)
    call = GetRunningInfo(consumer_group="g", client_id="user", jstack_enable=True)

    def forged(_command: service.TelemetryCommand) -> service.TelemetryCommand:
        return service.TelemetryCommand(thread_stack_trace=service.ThreadStackTrace(nonce="77"))

    async with user.telemetry(consumer_settings()):
        await known(proxy)
        with pytest.raises(CallRefused, match="gave no answer within 4000 ms"):
            await asyncio.gather(ask(admin, call), answering(user, forged)())
        call = GetRunningInfo(consumer_group="g", client_id="somebody else")
        with pytest.raises(CallRefused, match="not online"):
            await ask(admin, call)
