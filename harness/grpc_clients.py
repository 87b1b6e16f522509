"""The official clients of RocketMQ 5, each as a process that does what it is told.

Each is a program of tests/interop that reads commands and writes answers, one a line, their words
separated by tabs:

    send TOPIC TYPE VALUE BODY       ─▶  answer RECALL_HANDLE
    transact TOPIC END BODY          ─▶  answer
    recall TOPIC RECALL_HANDLE       ─▶  answer
    push GROUP TOPIC TAG             ─▶  answer
    receive GROUP TOPIC TAG END      ─▶  answer "ATTEMPT BODY" ...

VALUE is a tag, a message group, a delay in seconds or a priority, by the type. END of a transaction
is commit, rollback or nothing, when the client is asked and commits; of a receive it is ack, change
(to 10 s) or nothing. An error is `failed TEXT`. What happens to consumers comes between:

    handled GROUP ATTEMPT BODY       a push consumer's listener was called
    finished GROUP ATTEMPT BODY      a slow one has ended
    checked BODY                     a producer was asked about a transaction

A listener fails for the body `fails N ...` up to attempt N, and takes N seconds for `slow N ...`.
"""

import asyncio
import hashlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from harness import genuine

PROGRAMS: Final = Path(__file__).parents[1] / "tests" / "interop"
INSTALL_S: Final = 560
"""The Rust client compiles two hundred crates on its first use."""
ANSWER_S: Final = 60

JAVA: Final = "5.2.0"
NODE: Final = "1.0.8"
GO: Final = "5.1.4"
RUST: Final = "5.0.0"
PYTHON: Final = "5.1.2"

# The client uses a part of `time` that it does not ask for.
_CARGO: Final = f"""[package]
name = "client"
version = "1.0.0"
edition = "2021"

[dependencies]
rocketmq = "={RUST}"
time = {{ version = "0.3", features = ["local-offset"] }}
tokio = {{ version = "1", features = ["full"] }}

[profile.dev]
debug = false
"""

_GO_MODULE: Final = f"""module client

go 1.21

require github.com/apache/rocketmq-clients/golang/v5 v{GO}
"""


class NotInstalled(Exception):
    """A client that cannot be run here; the text says what to install."""


class Handled(NamedTuple):
    """One call of a push consumer's listener."""

    group: str
    attempt: int
    body: str


class GrpcClient:
    """A running client."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._answers: asyncio.Queue[list[str]] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self.handled: list[Handled] = []
        self.finished: list[Handled] = []
        self.checked: list[str] = []

    async def ask(self, *words: str) -> list[str]:
        """Give a command and wait for the words of its answer; RuntimeError if it failed."""
        assert self._process.stdin is not None
        async with self._turn, asyncio.timeout(ANSWER_S):
            self._process.stdin.write(("\t".join(words) + "\n").encode())
            kind, *answer = await self._answers.get()
        if kind == "failed":
            raise RuntimeError(f"{self.name}: {' '.join(words)}: {' '.join(answer)}")
        return answer

    async def send(self, topic: str, body: str, kind: str = "NORMAL", value: str = "") -> str:
        """Send a message; returns its recall handle, empty without one."""
        return (await self.ask("send", topic, kind, value, body) or [""])[0]

    async def push(self, group: str, topic: str, tag: str = "") -> None:
        """Start a push consumer."""
        await self.ask("push", group, topic, tag)

    async def receive(
        self, group: str, topic: str, *, tag: str = "", end: str = "ack"
    ) -> list[str]:
        """The bodies of one receive of a simple consumer."""
        found = await self.ask("receive", group, topic, tag, end)
        return [each.partition(" ")[2] for each in found if each]

    def bodies(self, group: str) -> list[str]:
        """Bodies that the listener of a group was called with, in their order."""
        return [each.body for each in self.handled if each.group == group]

    async def listen(self) -> None:
        """Read what it says until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            match line.decode("utf-8", "replace").rstrip("\n").split("\t"):
                case ["answer" | "failed", *_] as answer:
                    self._answers.put_nowait(answer)
                case ["handled", group, attempt, body]:
                    self.handled.append(Handled(group, int(attempt), body))
                case ["finished", group, attempt, body]:
                    self.finished.append(Handled(group, int(attempt), body))
                case ["checked", body]:
                    self.checked.append(body)
                case _:  # a client's own talk
                    pass
        self._answers.put_nowait(["failed", "it has ended"])


@asynccontextmanager
async def running(name: str, command: Sequence[str], home: Path) -> AsyncIterator[GrpcClient]:
    """A client until the block ends; its own logs come into `home`, which is there."""
    with (home / "stderr").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            limit=1 << 20,
            env={**os.environ, **ENVIRONMENT, "HOME": str(home), "USERPROFILE": str(home)},
        )
    client = GrpcClient(name, process)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


ENVIRONMENT: Final[Mapping[str, str]] = {
    "NODE_PATH": str(genuine.CACHE / f"grpc-node-{NODE}" / "node_modules"),
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m",
}


def command_of(name: str, address: str, *, tls: bool = False) -> list[str]:
    """The command line of a client; it is installed on first use. Raises NotInstalled."""
    return [*CLIENTS[name](), address, *(["tls"] if tls else [])]


def _python() -> Sequence[str]:
    try:
        python = genuine.python_with(f"rocketmq-python-client=={PYTHON}")
    except RuntimeError as error:
        raise NotInstalled(str(error)) from None
    return [python, str(PROGRAMS / "grpc_client.py")]


def _node() -> Sequence[str]:
    _need("node", "npm")
    folder = genuine.CACHE / f"grpc-node-{NODE}"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"name":"beside","version":"1.0.0","private":true}')
        package = f"rocketmq-client-nodejs@{NODE}"
        _install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package], folder)
        (folder / "complete").touch()
    return ["node", str(PROGRAMS / "grpc_client.js")]


def java_jars() -> Path:
    """The folder of the Java client's jar; fetched on first use. Raises NotInstalled."""
    _need("java", "mvn")
    coordinates = f"org.apache.rocketmq:rocketmq-client-java:{JAVA}"
    try:
        return genuine.fetched(f"grpc-java-{JAVA}", [coordinates])
    except subprocess.CalledProcessError as error:
        raise NotInstalled(f"{coordinates} does not install here: {error}") from None


def _java() -> Sequence[str]:
    return ["java", "-cp", f"{java_jars()}/*", str(PROGRAMS / "GrpcClient.java")]


def _go() -> Sequence[str]:
    _need("go")
    files = {"go.mod": _GO_MODULE, "main.go": (PROGRAMS / "grpc_client.go").read_text("utf-8")}
    commands = ["go mod tidy", "go build -buildvcs=false -o client ."]
    return [str(_built(f"grpc-go-{GO}", files, commands, Path("client")))]


def _rust() -> Sequence[str]:
    _need("cargo")
    files = {"Cargo.toml": _CARGO, "src/main.rs": (PROGRAMS / "grpc_client.rs").read_text("utf-8")}
    return [
        str(_built(f"grpc-rust-{RUST}", files, ["cargo build -q"], Path("target/debug/client")))
    ]


CLIENTS: Final[Mapping[str, Callable[[], Sequence[str]]]] = {
    "python": _python, "node": _node, "java": _java, "go": _go, "rust": _rust,
}  # fmt: skip
"""Command lines of the clients without the proxy's address, by their names."""


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise NotInstalled(f"no {program!r} on PATH: install it to run this client")


def _built(name: str, files: Mapping[str, str], commands: Sequence[str], program: Path) -> Path:
    """A program built in the cache, again after each change of its files."""
    folder = genuine.CACHE / name
    stamp = hashlib.sha256("".join(files.values()).encode()).hexdigest()[:12]
    if not (folder / stamp).exists():
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        for command in commands:
            _install(command.split(), folder)
        (folder / stamp).touch()
    return folder / program


def _install(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, check=False, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S
    )
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)} fails here: {done.stderr.strip()[-300:]}")
