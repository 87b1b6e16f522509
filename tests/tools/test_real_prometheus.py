"""A real Prometheus reads a real broker: its page, the alert rules, and what the board asks."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import monitoring_files
from harness.ports import free_port
from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client import ConsumerConfig, Producer, PullConsumer
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TRIES, PAUSE_S = 300, 0.2

CONFIG = """
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [{rules}]
scrape_configs:
  - job_name: roquet
    static_configs:
      - targets: [{targets}]
"""


class Prometheus:
    """A running Prometheus, asked over HTTP."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        with urlopen(f"{self._address}{path}?{urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self._address}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError):
            return False

    def values(self, expression: str) -> list[Any]:
        result: list[Any] = self.ask("/api/v1/query", query=expression)["result"]
        return result


@contextmanager
def prometheus(folder: Path, *targets: int) -> Iterator[Prometheus]:
    """A Prometheus that reads the pages at these ports of this machine."""
    if (program := shutil.which("prometheus")) is None:
        pytest.skip("no prometheus on PATH: tools/install/servers.sh installs it")
    config, port = folder / "prometheus.yml", free_port()
    pages = ", ".join(f'"127.0.0.1:{target}"' for target in targets)
    config.write_text(CONFIG.format(rules=monitoring_files.ALERTS, targets=pages), "utf-8")
    arguments = {
        "config.file": config,
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    command = [program, *(f"--{name}={value}" for name, value in arguments.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(30)


def wait_until(what: str, is_so: Any) -> None:
    for _ in range(TRIES):
        if is_so():
            return
        time.sleep(PAUSE_S)
    pytest.fail(f"{what} took more than {TRIES * PAUSE_S:.0f} s")


def is_scraped_twice(server: Prometheus) -> bool:
    """Whether all targets were read twice: a rate needs two values."""
    counts = server.values("count_over_time(up[1m])")
    return len(counts) == 2 and all(int(one["value"][1]) >= 2 for one in counts)


def check(server: Prometheus) -> None:
    wait_until("the start of Prometheus", server.is_ready)
    wait_until("the first reads", lambda: is_scraped_twice(server))
    targets = server.ask("/api/v1/targets")["activeTargets"]
    assert [(one["health"], one["lastError"]) for one in targets] == [("up", "")] * 2

    (group,) = server.ask("/api/v1/rules")["groups"]
    wait_until(
        "the first evaluation",
        lambda: all(
            rule["health"] == "ok" for rule in server.ask("/api/v1/rules")["groups"][0]["rules"]
        ),
    )
    assert len(group["rules"]) == len(monitoring_files.ALERT_RULES)

    shown, all_of_them = 0, 0
    for row in monitoring_files.BOARD_ROWS.values():
        for panel in row:
            for expression in panel.expressions.values():
                shown += bool(server.values(expression.replace("$node", ".*")))  # raises for 400
                all_of_them += 1
    assert shown > all_of_them / 2
    (sent,) = server.values('rocketmq_messages_in_total{topic="orders"}')
    assert sent["value"][1] == "3"
    assert not server.ask("/api/v1/alerts")["alerts"]


async def test_a_real_prometheus_reads_pages_rules_and_the_boards_queries(tmp_path: Path) -> None:
    exporter: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "metrics_exporter": MetricsExporterType.PROM,
        "metrics_port": 0,
    }
    async with (
        NameServer(NameServerConfig(**exporter)) as names,
        BrokerServer(BrokerConfig(**exporter, name_servers=(names.address,))) as broker,
        Producer(names.address) as producer,
        PullConsumer(names.address, group="g", config=ConsumerConfig()) as consumer,
    ):
        for _ in range(3):
            receipt = await producer.send("orders", b"hello")
        await consumer.pull(receipt.queue, 0)
        await consumer.commit(receipt.queue, receipt.queue_offset)

        def look() -> None:
            with prometheus(tmp_path, names.metrics_port, broker.metrics_port) as server:
                check(server)

        await asyncio.to_thread(look)
