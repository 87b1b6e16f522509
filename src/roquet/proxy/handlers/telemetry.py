"""Telemetry: a client's settings, its heartbeats, and what the proxy tells it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Final

from roquet.model.topic import SubscriptionGroup
from roquet.proxy.answers import OK
from roquet.proxy.caller import Caller
from roquet.proxy.clients import CLIENTS_MAX, ClientTable, Commands
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.rules.delay.delay_levels import (
    ExponentialBackoff,
    exponential_backoff,
    retry_steps_ms,
)
from roquet.rules.proxy import validation
from roquet.rules.proxy.status import ProxyRefusal, StatusCode

UNSERVED: Final = {
    pb.PULL_CONSUMER: "pull consumers",
    pb.LITE_PUSH_CONSUMER: "lite topics",
    pb.LITE_SIMPLE_CONSUMER: "lite topics",
}

ANSWERS: Final = ("thread_stack_trace", "verify_message_result")
"""Answers of clients to commands."""

TRIES_OF_PRODUCERS: Final = 3

SETTINGS_S: Final = 30
"""Time within which a stream brings its first settings; official clients send them at once."""

STREAMS_MAX: Final = 2 * CLIENTS_MAX
"""Streams at a time: a client that has lost its connection opens one more before the old ends."""

INT_MAX: Final = 2**31 - 1
"""`retry_max_times` of groups that try for ever; one more is no 32-bit number."""


def retry_policy(group: SubscriptionGroup, *, reads_steps: bool = True) -> pb.RetryPolicy:
    """Retry policy of a group's failed messages, as its clients get it.

    Those that read no steps get doubling times, from the first step to the last.
    """
    policy = pb.RetryPolicy(max_attempts=min(group.retry_max_times + 1, INT_MAX))
    steps_ms = retry_steps_ms(group.group_retry_policy)
    backoff = exponential_backoff(group.group_retry_policy)
    if backoff is None and not reads_steps:
        backoff = ExponentialBackoff(steps_ms[0], steps_ms[-1], 2)
    if backoff is not None:
        policy.exponential_backoff.initial.FromMilliseconds(backoff.initial_ms)
        policy.exponential_backoff.max.FromMilliseconds(backoff.max_ms)
        policy.exponential_backoff.multiplier = backoff.multiplier
        return policy
    for step_ms in steps_ms:
        policy.customized_backoff.next.add().FromMilliseconds(step_ms)
    return policy


class TelemetryHandler:
    """Takes settings of clients and answers with those that count."""

    __slots__ = ("_clients", "_cluster", "_streams")

    def __init__(self, cluster: ProxiedCluster, clients: ClientTable) -> None:
        self._cluster = cluster
        self._clients = clients
        self._streams = 0
        """Open streams; one client may have several."""

    async def telemetry(
        self, requests: AsyncIterator[service.TelemetryCommand], caller: Caller
    ) -> AsyncGenerator[service.TelemetryCommand, None]:
        """Answer settings, and pass commands on to the client while the stream lasts.

        Raises ProxyRefusal for settings that cannot be taken.
        """
        if self._streams >= STREAMS_MAX:
            text = f"this proxy has {self._streams} streams: use another one, or start one more"
            raise ProxyRefusal(StatusCode.TOO_MANY_REQUESTS, text)
        self._streams += 1
        commands: Commands = asyncio.Queue()
        reading = asyncio.create_task(self._read(requests, caller, commands))
        reading.add_done_callback(lambda _: commands.put_nowait(None))
        try:
            while (command := await commands.get()) is not None:
                yield command
                commands.task_done()
            if reading.done():
                await reading  # raises what ended it
        finally:
            self._streams -= 1
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if (client := self._clients.get(caller.client_id)) is not None:
                self._clients.leave_stream(client, commands)

    async def _read(
        self, requests: AsyncIterator[service.TelemetryCommand], caller: Caller, commands: Commands
    ) -> None:
        try:
            async with asyncio.timeout(SETTINGS_S) as limit:
                async for request in requests:
                    kind = request.WhichOneof("command")
                    if kind == "settings":
                        limit.reschedule(None)
                        merged = await self._take(request.settings, caller, commands)
                        commands.put_nowait(service.TelemetryCommand(status=OK, settings=merged))
                        await commands.join()  # a client that reads no answers is not read from
                    elif kind in ANSWERS and (client := self._clients.get(caller.client_id)):
                        client.take_answer(getattr(request, kind).nonce, request)
        except TimeoutError:
            text = f"no settings have come for {SETTINGS_S} s"
            raise ProxyRefusal(StatusCode.BAD_REQUEST, text) from None

    async def _take(self, settings: pb.Settings, caller: Caller, commands: Commands) -> pb.Settings:
        validation.check_client_properties(settings.client_properties)
        match settings.WhichOneof("pub_sub"):
            case "publishing":
                merged = await self._producer(settings)
            case "subscription":
                merged = await self._consumer(settings)
            case _:
                raise ProxyRefusal(
                    StatusCode.BAD_REQUEST,
                    "the settings say neither what the client publishes nor what it subscribes to",
                )
        self._clients.update(caller, merged, commands)
        return merged

    async def _producer(self, settings: pb.Settings) -> pb.Settings:
        merged = pb.Settings()
        merged.CopyFrom(settings)
        for topic in merged.publishing.topics:
            validation.check_topic(topic.name)
            # A topic that does not exist is refused when it is sent to.
            with suppress(ProxyRefusal):
                await self._cluster.find_route(topic.name)
                if await self._cluster.topic_type(topic.name) == "TRANSACTION":
                    self._cluster.ask_about(topic.name)
        merged.publishing.max_body_size = validation.BODY_SIZE_MAX
        merged.publishing.validate_message_type = self._cluster.checks_types
        backoff = merged.backoff_policy
        backoff.max_attempts = TRIES_OF_PRODUCERS
        backoff.exponential_backoff.initial.FromMilliseconds(10)
        backoff.exponential_backoff.max.FromMilliseconds(1_000)
        backoff.exponential_backoff.multiplier = 2
        merged.metric.on = False
        return merged

    async def _consumer(self, settings: pb.Settings) -> pb.Settings:
        if (what := UNSERVED.get(settings.client_type)) is not None:
            raise ProxyRefusal(
                StatusCode.UNRECOGNIZED_CLIENT_TYPE, f"this proxy does not serve {what}"
            )
        merged = pb.Settings()
        merged.CopyFrom(settings)
        subscription = merged.subscription
        name = validation.check_group(subscription.group.name)
        topics = [validation.check_topic(it.topic.name) for it in subscription.subscriptions]
        topic = topics[0] if topics else ""
        if topic:
            with suppress(ProxyRefusal):
                await self._cluster.find_route(topic)
        group = await self._cluster.group(name, topic)
        # Node's client 1.0.8 reads no steps: its ordered consumers give up after the first try.
        is_node = settings.user_agent.language == pb.NODE_JS
        merged.backoff_policy.CopyFrom(retry_policy(group, reads_steps=not is_node))
        subscription.fifo = group.consume_message_orderly
        subscription.receive_batch_size = validation.BATCH_MAX
        subscription.long_polling_timeout.FromMilliseconds(validation.POLLING_MAX_MS)
        merged.metric.on = False
        return merged

    async def heartbeat(
        self, request: service.HeartbeatRequest, caller: Caller
    ) -> service.HeartbeatResponse:
        """Note that a client is there; a consumer names its group."""
        client = self._clients.note_heartbeat(caller.client_id)
        if not client.settings.HasField("backoff_policy"):  # they were made from a receive
            text = "the client's own settings have not come yet by its Telemetry stream"
            raise ProxyRefusal(StatusCode.UNRECOGNIZED_CLIENT_TYPE, text)
        if client.settings.HasField("subscription"):
            validation.check_group(request.group.name)
        return service.HeartbeatResponse()

    async def terminate(
        self, _request: service.NotifyClientTerminationRequest, caller: Caller
    ) -> service.NotifyClientTerminationResponse:
        """Forget a client that leaves: its messages come again soon."""
        self._clients.remove(caller.client_id)
        return service.NotifyClientTerminationResponse()
