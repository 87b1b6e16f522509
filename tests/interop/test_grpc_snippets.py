"""The programs of docs/howto/rocketmq-5-clients.md, beside our proxy."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.interop.grpc_group import add_topics

from harness import genuine, grpc_clients
from harness.ports import HOST, free_port
from harness.servers import DevServer

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "rocketmq-5-clients.md"


def blocks(text: str, language: str) -> list[str]:
    """The programs of one language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def command_of(language: str, program: str, folder: Path) -> Sequence[str]:
    """Command line of a program that uses a client; skips where that cannot be installed."""
    try:
        match language:
            case "go":
                return [grpc_clients.go_program(program)]
            case "rust":
                return [grpc_clients.rust_program(program)]
            case "ts":
                installed = grpc_clients.command_of("node", "")[0]
                (folder / "node_modules").symlink_to(grpc_clients.ENVIRONMENT["NODE_PATH"])
                (folder / "program.mjs").write_text(program, "utf-8")
                return [installed, str(folder / "program.mjs")]
            case _:
                name = {"js": "node"}.get(language, language)
                *command, _, _ = grpc_clients.command_of(name, "")
                path = folder / f"Program.{language}"
                path.write_text(program, "utf-8")
                return [*command, str(path)]
    except grpc_clients.NotInstalled as error:
        pytest.skip(str(error))


async def output_of(language: str, program: str, folder: Path, topic: str) -> str:
    """What a program says beside `roquet dev`, which has its topic."""
    port = free_port()
    program = re.sub(r"(127\.0\.0\.1|localhost):8081", f"{HOST}:{port}", program)
    command = command_of(language, program, folder)
    with DevServer(folder, "--memory", "--grpc-port", str(port)) as dev:
        await add_topics(dev.address, {topic: None})
        environment = ["env", *(f"{key}={text}" for key, text in grpc_clients.ENVIRONMENT.items())]
        whole = [*environment, *command]
        return await asyncio.to_thread(genuine.run, whole, seconds=60, home=folder / "home")


@pytest.mark.parametrize("language", ["python", "java", "js", "go", "rust"])
async def test_the_pages_program_sends_a_message_and_receives_it(
    language: str, tmp_path: Path
) -> None:
    (program,) = blocks(PAGE.read_text("utf-8"), language)
    assert "one espresso" in await output_of(language, program, tmp_path, "orders")
