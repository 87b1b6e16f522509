"""A library and a program: clients of RocketMQ 5 that load a proxy, in plain grpcio.

    python -m bench.lib.grpc_load send 127.0.0.1:8081 --clients 16 --seconds 5

Both sides get the same requests of the same program, in a process of its own. It prints one JSON.
"""

import argparse
import asyncio
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import grpc

from bench.lib.measures import percentile
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service

TOPIC: Final = "GrpcBench"
GROUP: Final = "grpc-bench"
BODY: Final = b"x" * 128
BATCH: Final = 32
SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),   # a connection for each client
]  # fmt: skip
HEARTBEAT_S: Final = 10
ASSIGNMENT_S: Final = 5
WAIT_S: Final = 20
ARRIVALS: Final = 200
"""Waiting clients that come in a second, as in a rolling start."""


def metadata(name: str) -> list[tuple[str, str]]:
    """Headers by which each request names its client."""
    return [("x-mq-client-id", name), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.2")]


def unary(channel: Any, name: str) -> Any:
    """A method of one request and one answer."""
    request, response = (getattr(service, f"{name}{end}") for end in ("Request", "Response"))
    return channel.unary_unary(
        SERVICE + name,
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )


def receiving(channel: Any) -> Any:
    """The method that receives messages."""
    return channel.unary_stream(
        SERVICE + "ReceiveMessage",
        request_serializer=service.ReceiveMessageRequest.SerializeToString,
        response_deserializer=service.ReceiveMessageResponse.FromString,
    )


def telemetry(channel: Any) -> Any:
    """The method by which a client says its settings."""
    return channel.stream_stream(
        SERVICE + "Telemetry",
        request_serializer=service.TelemetryCommand.SerializeToString,
        response_deserializer=service.TelemetryCommand.FromString,
    )


def endpoints(address: str) -> pb.Endpoints:
    """The address by which clients know the proxy."""
    host, _, port = address.rpartition(":")
    return pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=int(port))])


def settings(address: str, kind: Any) -> service.TelemetryCommand:
    """Settings of a consumer."""
    subscription = pb.Subscription(
        group=pb.Resource(name=GROUP),
        subscriptions=[
            pb.SubscriptionEntry(topic=pb.Resource(name=TOPIC), expression=everything())
        ],
    )
    return service.TelemetryCommand(
        settings=pb.Settings(
            client_type=kind, access_point=endpoints(address), subscription=subscription
        )
    )


def everything() -> pb.FilterExpression:
    """The filter of all messages."""
    return pb.FilterExpression(type=pb.TAG, expression="*")


def receive_request(broker: str, *, waits: bool) -> service.ReceiveMessageRequest:
    """A receive of one batch from a broker."""
    request = service.ReceiveMessageRequest(
        group=pb.Resource(name=GROUP),
        message_queue=pb.MessageQueue(
            topic=pb.Resource(name=TOPIC), broker=pb.Broker(name=broker), id=-1
        ),
        filter_expression=everything(),
        batch_size=BATCH,
        auto_renew=waits,
    )
    request.invisible_duration.FromSeconds(60)
    request.long_polling_timeout.FromSeconds(WAIT_S if waits else 5)
    return request


def route(channel: Any, address: str) -> Any:
    """The answer to a request for the topic's route."""
    request = service.QueryRouteRequest(topic=pb.Resource(name=TOPIC), endpoints=endpoints(address))
    return unary(channel, "QueryRoute")(request, timeout=3, metadata=metadata("route"))


def first_route(address: str, patience_s: float = 90) -> None:
    """Return when the proxy has answered with a route."""
    deadline = time.monotonic() + patience_s
    with grpc.insecure_channel(address, OPTIONS) as channel:
        while time.monotonic() < deadline:
            with suppress(grpc.RpcError):
                if route(channel, address).message_queues:
                    return
            time.sleep(0.02)
    raise TimeoutError(f"no route of {TOPIC} by {address}")


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Let threads do a work, and wait for all."""
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def send(address: str, clients: int, seconds: float) -> dict[str, float]:
    """Threads of one client send single messages; gives the rate and the median, in ms."""
    trips: list[float] = []
    with grpc.insecure_channel(address, OPTIONS) as channel:
        call = unary(channel, "SendMessage")
        end = time.monotonic() + seconds

        def work(number: int) -> None:
            count = 0
            while (began := time.monotonic()) < end:
                count += 1
                message = pb.Message(topic=pb.Resource(name=TOPIC), body=BODY)
                message.system_properties.message_id = f"{number:04}{count:028}"
                message.system_properties.born_timestamp.GetCurrentTime()
                request = service.SendMessageRequest(messages=[message])
                answer = call(request, timeout=10, metadata=metadata("sender"))
                if answer.status.code != pb.OK:
                    raise RuntimeError(str(answer.status))
                trips.append((time.monotonic() - began) * 1000)

        in_threads(clients, work)
    return {"rate": len(trips) / seconds, "p50_ms": statistics.median(trips),
            "p99_ms": percentile(sorted(trips), 99), "messages": len(trips)}  # fmt: skip


def receive(address: str, clients: int, seconds: float) -> dict[str, float]:
    """Simple consumers receive and acknowledge batches; gives their rate together."""
    taken: list[tuple[float, int]] = []
    with grpc.insecure_channel(address, OPTIONS) as channel:
        broker = route(channel, address).message_queues[0].broker.name
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        name, over = metadata(f"receiver-{number}"), threading.Event()

        def commands() -> Iterator[service.TelemetryCommand]:
            yield settings(address, pb.SIMPLE_CONSUMER)
            over.wait()

        with grpc.insecure_channel(address, OPTIONS) as channel:
            next(iter(telemetry(channel)(commands(), metadata=name)))
            call, ack = receiving(channel), unary(channel, "AckMessage")
            while time.monotonic() < end:
                parts = call(receive_request(broker, waits=False), timeout=15, metadata=name)
                found = [part.message for part in parts if part.HasField("message")]
                if not found:
                    break
                request = service.AckMessageRequest(
                    group=pb.Resource(name=GROUP), topic=pb.Resource(name=TOPIC)
                )
                for message in found:
                    system = message.system_properties
                    request.entries.add(
                        message_id=system.message_id, receipt_handle=system.receipt_handle
                    )
                answer = ack(request, timeout=10, metadata=name)
                if answer.status.code != pb.OK:
                    raise RuntimeError(str(answer.status))
                taken.append((time.monotonic(), len(found)))
            over.set()

    began = time.monotonic()
    in_threads(clients, work)
    messages = sum(count for _, count in taken)
    last = max((when for when, _ in taken), default=began)  # the topic may end before the time
    return {"rate": messages / max(last - began, 0.001), "messages": messages}


def idle(address: str, clients: int, seconds: float) -> dict[str, float]:
    """Push consumers that wait for messages, with all that official ones ask meanwhile."""
    with grpc.insecure_channel(address, OPTIONS) as channel:
        broker = route(channel, address).message_queues[0].broker.name
    return asyncio.run(_idle(address, broker, clients, seconds))


async def _idle(address: str, broker: str, clients: int, seconds: float) -> dict[str, float]:
    failures: list[str] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number / ARRIVALS)
        try:
            await _push_consumer(address, broker, metadata(f"idle-{number}"))
        except grpc.aio.AioRpcError as error:
            failures.append(str(error.code()))

    tasks = [asyncio.create_task(one(number)) for number in range(clients)]
    await asyncio.sleep(clients / ARRIVALS + 10)
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"failures": len(failures)}


async def _push_consumer(address: str, broker: str, name: list[tuple[str, str]]) -> None:
    """Wait for messages for ever."""
    async with grpc.aio.insecure_channel(address, OPTIONS) as channel:
        stream = telemetry(channel)(metadata=name)
        await stream.write(settings(address, pb.PUSH_CONSUMER))
        await stream.read()
        group, topic = pb.Resource(name=GROUP), pb.Resource(name=TOPIC)
        beat = service.HeartbeatRequest(group=group, client_type=pb.PUSH_CONSUMER)
        ask = service.QueryAssignmentRequest(topic=topic, group=group, endpoints=endpoints(address))

        async def wait() -> None:
            call, request = receiving(channel), receive_request(broker, waits=True)
            while True:
                async for _ in call(request, timeout=WAIT_S + 5, metadata=name):
                    pass

        async def repeat(method: str, request: Any, period_s: float) -> None:
            call = unary(channel, method)
            while True:
                await call(request, timeout=10, metadata=name)
                await asyncio.sleep(period_s)

        await asyncio.gather(
            wait(),
            repeat("Heartbeat", beat, HEARTBEAT_S),
            repeat("QueryAssignment", ask, ASSIGNMENT_S),
        )


WORKS: Final = {"send": send, "receive": receive, "idle": idle}


def main() -> None:
    """Do one work, and print what it measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("address", help="of the proxy")
    parser.add_argument("--clients", type=int, default=1, help="threads, or consumers")
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    print(json.dumps(WORKS[args.work](args.address, args.clients, args.seconds)))


if __name__ == "__main__":
    main()
