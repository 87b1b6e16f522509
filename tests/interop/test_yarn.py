"""An archive by executors of YARN: Hadoop's mini cluster, and an S3 server as the lake."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from deltalake import DeltaTable as Log
from tests.spark_suite.conftest import PersistentTopic, S3Server, s3_server

from harness import genuine
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

PROGRAM = str(Path(__file__).with_name("YarnCluster.java"))
SOURCES = str(Path(__file__).parents[2] / "src")

JARS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    # Its pom leaves these out, and its classes need them.
    "org.junit.jupiter:junit-jupiter-api:5.10.5",
    "org.mockito:mockito-core:4.11.0",
    "org.slf4j:slf4j-reload4j:1.7.36",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
)

TABLE = "s3://lake/orders"
START_S = 180
COUNT = 1_000
"""Messages to each of four queues."""


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as running, running.reached():
        yield running


@pytest.fixture
def hadoop(tmp_path: Path, s3: S3Server) -> Iterator[Path]:
    """The configuration of a running YARN, and Spark's for it."""
    if reason := genuine.missing():
        pytest.skip(reason)
    conf, home = tmp_path / "conf", tmp_path / "yarn"
    conf.mkdir()
    home.mkdir()
    jars = Path(pyspark.__file__).parent / "jars"
    settings = {
        "spark.yarn.jars": f"local:{jars}/*",
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.executorEnv.PYTHONPATH": SOURCES,
        **{f"spark.executorEnv.{name}": value for name, value in s3.environ.items()},
    }
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (conf / "spark-defaults.conf").write_text(lines)
    lib = genuine.fetched("yarn-3.5.0", JARS)
    command = ["java", "-Xmx700m", "-cp", f"{lib}/*", PROGRAM, str(conf)]
    with (
        (tmp_path / "yarn.log").open("w") as log,
        subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            for _ in range(START_S):
                if "ready" in (tmp_path / "yarn.log").read_text().split():
                    break
                assert process.poll() is None, (tmp_path / "yarn.log").read_text()[-3000:]
                time.sleep(1)
            else:
                raise AssertionError("YARN did not start")
            yield conf
        finally:
            process.kill()


def test_an_archive_runs_on_executors_of_yarn(hadoop: Path, s3: S3Server, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        **s3.environ,
        "HADOOP_CONF_DIR": str(hadoop),
        "SPARK_CONF_DIR": str(hadoop),
        "PYTHONPATH": SOURCES,
    }
    with BlockingCluster(store=tmp_path / "brokers") as running:
        topic = PersistentTopic(running)
        command = [
            sys.executable, "-m", "roquet", "spark", "archive", "orders", TABLE, "--kind", "delta",
            "--master", "yarn", "--namesrv", topic.namesrv, "--json",
        ]  # fmt: skip
        for _ in range(2):
            topic.send(count=COUNT)
            done = subprocess.run(
                command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[-4000:]
            result: dict[str, Any] = json.loads(done.stdout)
            assert result["rows"] == 4 * COUNT
        rows = Log(TABLE).to_pyarrow_table(columns=["body"])
    assert sorted(rows["body"].to_pylist()) == sorted(topic.sent)
