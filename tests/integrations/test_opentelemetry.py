import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from roquet.client import Producer, ProducerConfig
from roquet.client.connection.session import Session
from roquet.integrations.opentelemetry import RocketMQInstrumentor
from roquet.testing.cluster import BlockingCluster, cluster

ROOT = Path(__file__).parents[2]

CONFIGURATOR = "opentelemetry.sdk._configuration:_OTelSDKConfigurator"

PROGRAM = dedent(
    """
    import asyncio
    from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer

    async def main():
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
        async with Producer() as producer, PushConsumer(
            group="billing", topic="Orders", config=config
        ) as consumer:
            await producer.send("Orders", b"x")

            async def bill(message):
                consumer.stop()

            await consumer.run(bill)

    asyncio.run(main())
    """
)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Spans of the clients that are made while an instrumentor is on."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    instrumentor = RocketMQInstrumentor()
    instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
    yield kept
    instrumentor.uninstrument()
    assert Session.default_tracing is False


@pytest.mark.virtual_time
async def test_clients_make_spans_unless_their_settings_say_no(spans: InMemorySpanExporter) -> None:
    async with cluster() as running:
        for tracing in (None, False):
            config = ProducerConfig(tracing=tracing)
            async with Producer(running.namesrv_addr, config=config) as producer:
                await producer.send("Orders", b"x")
    assert [span.name for span in spans.get_finished_spans()] == ["send Orders"]


def test_the_instrumentor_names_what_it_instruments() -> None:
    assert RocketMQInstrumentor().instrumentation_dependencies() == ("roquet >= 0.1",)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory where Python finds entry points: the project's own, and opentelemetry-distro's.

    The latter configures the SDK by the environment; it is an alias of the SDK's own class.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = ["[opentelemetry_configurator]", f"configurator = {CONFIGURATOR}"]
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (needed,) = project["optional-dependencies"]["instruments"]
    metadata = tmp_path / "roquet-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: roquet\nVersion: 0.1.0\nProvides-Extra: instruments\n"
        f"Requires-Dist: {needed}; extra == 'instruments'\n",
        "utf-8",
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("disabled", ["", "rocketmq"])
def test_the_command_of_opentelemetry_turns_spans_on(installed: Path, disabled: str) -> None:
    command = Path(sys.executable).parent / "opentelemetry-instrument"
    with BlockingCluster() as running:
        ended = subprocess.run(
            [command, "--traces_exporter", "console", "--metrics_exporter", "none",
             "--logs_exporter", "none", sys.executable, "-c", PROGRAM],
            env={
                **os.environ,
                "NAMESRV_ADDR": running.namesrv_addr,
                "PYTHONPATH": f"{installed}{os.pathsep}{ROOT / 'src'}",
                "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": disabled,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    names = {name for name in ("send Orders", "process Orders") if f'"{name}"' in ended.stdout}
    assert names == (set() if disabled else {"send Orders", "process Orders"})
