"""Spans of FastStream's middleware, and the metrics beside them."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from roquet.integrations.faststream import RocketBroker, TestRocketBroker
from roquet.integrations.faststream.telemetry import RocketTelemetryMiddleware


async def test_a_publish_and_its_handlers_are_spans_of_one_trace() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    middleware = RocketTelemetryMiddleware(tracer_provider=provider)
    broker = RocketBroker("127.0.0.1:1", logger=None, middlewares=[middleware])

    @broker.subscriber("orders", group="billing")
    @broker.publisher("bills")
    async def bill(amount: int) -> int:
        return amount

    @broker.subscriber("bills", group="mail", batch=True)
    async def mail(amounts: list[int]) -> None: ...

    async with TestRocketBroker(broker) as tested:
        await tested.publish(42, "orders")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {"orders publish", "orders process", "bills publish", "bills process"} <= {*spans}
    assert len({spans[f"orders {kind}"].context.trace_id for kind in ("create", "process")}) == 1
    assert spans["bills publish"].attributes == {
        "messaging.destination.name": "bills",
        "messaging.system": "rocketmq",
        "messaging.operation": "publish",
    }
    assert (spans["bills process"].attributes or {})["messaging.batch.message_count"] == 1
    assert any(span.links for span in exporter.get_finished_spans()), "a batch has no one parent"
