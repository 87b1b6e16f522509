"""Settings of clients, heartbeats and what the proxy tells its clients."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from tests.proxy.conftest import Aborted, User, consumer_settings, producer_settings

from roquet.model.topic import SubscriptionGroup
from roquet.proxy.handlers import telemetry
from roquet.proxy.handlers.telemetry import retry_policy
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop


async def heartbeat(user: User) -> int:
    request = service.HeartbeatRequest(group=pb.Resource(name="g"))
    return int((await user.call("Heartbeat", request)).status.code)


async def test_a_client_is_forgotten_two_minutes_after_its_last_heartbeat(proxy: Proxy) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        await asyncio.sleep(110)
        assert await heartbeat(user) == pb.OK
        await asyncio.sleep(110)
        assert await heartbeat(user) == pb.OK
        await asyncio.sleep(130)
        assert await heartbeat(user) == pb.UNRECOGNIZED_CLIENT_TYPE


async def test_one_stream_too_many_is_told_so(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "STREAMS_MAX", 1)
    for _ in range(2):  # one that has ended makes room
        async with User(proxy, "a").telemetry(consumer_settings()):
            with pytest.raises(Aborted, match="this proxy has 1 streams"):
                async with User(proxy, "b").telemetry(consumer_settings()):
                    pass


async def test_the_stream_of_a_client_that_is_forgotten_ends(proxy: Proxy) -> None:
    settings = service.TelemetryCommand(settings=consumer_settings())

    async def ask() -> AsyncIterator[service.TelemetryCommand]:
        yield settings
        await asyncio.Event().wait()

    context = User(proxy).context(None)
    async with asyncio.timeout(130):
        answers = [part async for part in proxy.methods["Telemetry"].stream_stream(ask(), context)]
    assert len(answers) == 1


async def test_a_client_outlives_its_stream(proxy: Proxy) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        pass
    assert await heartbeat(user) == pb.OK


async def test_a_client_in_any_language_is_served(proxy: Proxy) -> None:
    user = User(proxy, **{"x-mq-language": "COBOL"})
    async with user.telemetry(consumer_settings()) as answer:
        assert answer.status.code == pb.OK


@pytest.mark.parametrize(
    ("kind", "what"), [("PULL_CONSUMER", "pull consumers"), ("LITE_PUSH_CONSUMER", "lite topics")]
)
async def test_a_stream_of_a_client_that_is_not_served_says_what_is_not(
    proxy: Proxy, kind: str, what: str
) -> None:
    with pytest.raises(Aborted, match=what) as caught:
        async with User(proxy).telemetry(consumer_settings(kind=kind)):
            pytest.fail("it was taken")
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_client_is_told_to_connect_elsewhere_before_its_stream_ends(proxy: Proxy) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        proxy.drain()
        await asyncio.sleep(1)
        (command,) = user.told
        assert command.HasField("reconnect_endpoints_command")


async def test_producers_are_told_the_limits(proxy: Proxy) -> None:
    async with User(proxy).telemetry(producer_settings("NORM", "nowhere")) as answer:
        publishing = answer.settings.publishing
        assert publishing.max_body_size == 4 * 1024 * 1024
        assert publishing.validate_message_type


async def test_client_properties_over_a_limit_end_the_stream_with_the_reason(proxy: Proxy) -> None:
    settings = consumer_settings()
    settings.client_properties["my zone"] = "eu"
    with pytest.raises(Aborted, match="client property 'my zone': a name has") as caught:
        async with User(proxy).telemetry(settings):
            pass
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    del settings.client_properties["my zone"]
    settings.client_properties["zone"] = "eu"
    async with User(proxy).telemetry(settings) as answer:
        assert dict(answer.settings.client_properties) == {"zone": "eu"}


async def test_an_ordered_group_is_told_so(proxy: Proxy) -> None:
    async with User(proxy).telemetry(consumer_settings("G_fifo", "FIFOT")) as answer:
        assert answer.settings.subscription.fifo
        assert answer.settings.backoff_policy.max_attempts == 17


def test_an_exponential_policy_is_told_as_one() -> None:
    wire: dict[str, object] = {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 100, "max": 900},
    }
    policy = retry_policy(SubscriptionGroup(retry_max_times=3, group_retry_policy=wire))
    assert policy.max_attempts == 4
    backoff = policy.exponential_backoff
    assert backoff.initial.ToMilliseconds() == 100
    assert backoff.max.ToMilliseconds() == 900
    assert backoff.multiplier == 2


async def test_a_node_client_gets_doubling_times_since_it_reads_no_steps(proxy: Proxy) -> None:
    settings = consumer_settings("G_fifo", "FIFOT")
    settings.user_agent.language = pb.NODE_JS
    async with User(proxy).telemetry(settings) as answer:
        backoff = answer.settings.backoff_policy.exponential_backoff
        assert backoff.initial.ToMilliseconds() == 1_000
        assert backoff.max.ToMilliseconds() == 7_200_000
        assert backoff.multiplier == 2


def test_a_group_that_tries_for_ever_is_told_the_largest_number() -> None:
    policy = retry_policy(SubscriptionGroup(retry_max_times=2**31 - 1))
    assert policy.max_attempts == 2**31 - 1


async def test_a_client_that_reads_no_answers_is_not_read_from(proxy: Proxy) -> None:
    user, asked = User(proxy), 0

    async def ask() -> AsyncIterator[service.TelemetryCommand]:
        nonlocal asked
        while True:
            asked += 1
            yield service.TelemetryCommand(settings=producer_settings("NORM"))

    answers = proxy.methods["Telemetry"].stream_stream(ask(), user.context(None))
    await anext(answers)
    await asyncio.sleep(60)
    assert asked < 5
    await answers.aclose()


async def test_a_stream_that_brings_no_settings_ends(proxy: Proxy) -> None:
    clock = this_loop().clock

    async def silent() -> AsyncIterator[service.TelemetryCommand]:
        yield service.TelemetryCommand()
        await asyncio.Event().wait()

    begun_ms = clock.now_ms()
    answers = proxy.methods["Telemetry"].stream_stream(silent(), User(proxy).context(None))
    with pytest.raises(Aborted, match="no settings have come for 30 s"):
        await anext(answers)
    assert clock.now_ms() - begun_ms == 30_000
