"""The quick starts that come with the clients' own packages, beside our proxy."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.interop.grpc_group import installed
from tests.interop.test_grpc_snippets import blocks, output_of

from harness.grpc_clients import ENVIRONMENT, GO_FOLDER, RUST

pytestmark = pytest.mark.interop


def go_module() -> Path:
    """The folder of the Go client's module."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/apache/rocketmq-clients/golang/v5"]
    done = subprocess.run(command, check=True, cwd=GO_FOLDER, capture_output=True, text=True)
    return Path(done.stdout.strip())


def cargo_home() -> Path:
    """The folder of the packages that cargo has fetched."""
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


async def test_the_node_clients_readme_sends_and_receives(tmp_path: Path) -> None:
    installed(["node"])
    package = Path(ENVIRONMENT["NODE_PATH"]) / "rocketmq-client-nodejs"
    programs = blocks((package / "README.md").read_text("utf-8"), "ts")
    producer = programs[0]
    consumer = next(each for each in programs if "new SimpleConsumer" in each)
    lines = [line for line in consumer.splitlines() if not line.startswith("import")]
    # One program: a new group begins with what comes after its first receive.
    joined = "\n".join(
        ["import { SimpleConsumer } from 'rocketmq-client-nodejs';", producer, *lines]
    )
    output = await output_of("ts", joined + "\nprocess.exit(0);\n", tmp_path, "TopicTest")
    assert "got 1 messages" in output
    assert "rocketmq-client-nodejs world" in output


async def test_the_go_modules_example_sends(tmp_path: Path) -> None:
    installed(["go"])
    program = (go_module() / "example/producer/normal/main.go").read_text("utf-8")
    program = re.sub(r"Topic\s+= \"x+\"", 'Topic = "Normal"', program)
    program = re.sub(r"Endpoint\s+= \"x+\"", 'Endpoint = "127.0.0.1:8081"', program)
    output = await output_of("go", program, tmp_path, "Normal")
    assert len(re.findall(r"MessageID:\"\w+\"", output)) == 10


async def test_the_rust_crates_example_sends(tmp_path: Path) -> None:
    installed(["rust"])
    (example,) = cargo_home().glob(f"registry/src/*/rocketmq-{RUST}/examples/producer.rs")
    program = example.read_text("utf-8")
    output = await output_of("rust", program, tmp_path, "test_topic")
    assert "send message success" in output
