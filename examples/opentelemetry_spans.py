"""Spans of OpenTelemetry: a request, the message that it sends, and its handler are one trace.

Needs a cluster, as send.py does, and `pip install 'roquet[tracing]' opentelemetry-sdk`.
"""

import asyncio
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
)


def print_tree(spans: Sequence[ReadableSpan], parent: ReadableSpan, depth: int = 0) -> None:
    """Print a span, and those that it led to."""
    print(f"{'  ' * depth + parent.name:<30} {parent.kind.name}")
    assert parent.context is not None
    for span in spans:
        if span.parent is not None and span.parent.span_id == parent.context.span_id:
            print_tree(spans, span, depth + 1)


async def main() -> None:
    kept = InMemorySpanExporter()  # in production: an exporter of your tracing system
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)

    reading = ConsumerConfig(tracing=True, consume_from=ConsumeFrom.FIRST)
    async with (
        Producer(group="shop", config=ProducerConfig(tracing=True)) as producer,
        PushConsumer(group="billing", topic="Orders", config=reading) as consumer,
    ):
        with trace.get_tracer("shop").start_as_current_span("create order"):
            receipt = await producer.send("Orders", b'{"id": 4711}')

        async def bill(message: ReceivedMessage) -> None:
            if message.message_id == receipt.message_id:
                consumer.stop()

        await consumer.run(bill)
    spans = kept.get_finished_spans()
    print_tree(spans, next(span for span in spans if span.name == "create order"))


asyncio.run(main())
