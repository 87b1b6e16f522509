"""The genuine Java client as a process that does what it is told: see GroupMember.java."""

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import genuine

PROGRAMS: Final = Path(__file__).parent.parent / "tests" / "interop"
ANSWER_SECONDS_MAX: Final = 60
"""A JVM that compiles its program first, on a busy machine of two cores."""


class Handled(NamedTuple):
    """One try at one message by a Java member."""

    name: str
    ms: int
    tries: int
    topic: str
    queue: tuple[str, int]
    body: str


class JavaClient:
    """Java consumers and producers in one process."""

    def __init__(self, child: "subprocess.Popen[bytes]", version: str) -> None:
        self.version = version
        self._child = child
        self._asked = 0
        self._answers: dict[str, str] = {}
        self._news = threading.Condition()
        self._is_over = False
        self.handled: list[Handled] = []
        """In the order in which Java told of them; grows while it runs."""

    async def join(
        self, namesrv: str, group: str, topic: str, name: str = "java",
        strategy: str = "AVG", mode: str = "concurrent", tries: int | None = None,
    ) -> str:  # fmt: skip
        """Start a push consumer; its client id."""
        most = [] if tries is None else [str(tries)]
        return await self.ask("join", name, namesrv, group, topic, strategy, mode, *most)

    async def owns(self, name: str = "java") -> set[tuple[str, int]]:
        """Broker and id of the queues that a member reads, without those of retry topics."""
        said = await self.ask("owns", name)
        return {(broker, int(number)) for broker, number in (q.split("/") for q in said.split())}

    async def leave(self, name: str = "java") -> None:
        """Shut a consumer down in good order."""
        await self.ask("leave", name)

    async def send(self, namesrv: str, topic: str, body: str, *, delay_level: int = 0) -> str:
        """Send a message; Java's word for how that went."""
        return await self.ask("send", namesrv, topic, str(delay_level), body)

    async def ask(self, *words: str) -> str:
        """Give an order and wait for the answer; RuntimeError when Java could not."""
        return await asyncio.to_thread(self._ask, *words)

    def bodies(self, name: str = "java") -> list[str]:
        """The messages that a member has handled so far."""
        return [one.body for one in list(self.handled) if one.name == name]

    def listen(self) -> None:
        """Read what Java says until it ends; runs in a thread."""
        assert self._child.stdout is not None
        for line in self._child.stdout:
            match line.decode().rstrip("\n").split(" ", 2):
                case ["=", number, answer]:
                    self._answer(number, answer)
                case ["handled", name, rest]:
                    ms, tries, topic, broker, queue_id, body = rest.split(" ", 5)
                    queue = broker, int(queue_id)
                    self.handled.append(Handled(name, int(ms), int(tries), topic, queue, body))
                case ["ready"]:
                    self._answer("0", "ready")
                case _:  # the client's own talk
                    pass
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def wait_ready(self) -> None:
        """Until the program runs."""
        self._wait("0")

    def _answer(self, number: str, answer: str) -> None:
        with self._news:
            self._answers[number] = answer
            self._news.notify_all()

    def _ask(self, *words: str) -> str:
        assert self._child.stdin is not None
        with self._news:
            self._asked += 1
            number = str(self._asked)
            self._child.stdin.write(f"{number} {' '.join(words)}\n".encode())
            self._child.stdin.flush()
        answer = self._wait(number)
        if answer.startswith("failed"):
            raise RuntimeError(f"Java: {' '.join(words)}: {answer}")
        return answer

    def _wait(self, number: str) -> str:
        with self._news:
            told = self._news.wait_for(
                lambda: number in self._answers or self._is_over, ANSWER_SECONDS_MAX
            )
            if not told or number not in self._answers:
                raise RuntimeError(
                    "the Java client is gone" if told else "the Java client is silent"
                )
            return self._answers.pop(number)


async def until(
    holds: Callable[[], bool] | Callable[[], Awaitable[bool]], seconds: float = 45
) -> None:
    """Wait for what has to come; TimeoutError when it does not."""
    async with asyncio.timeout(seconds):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def java_client(
    home: Path, program: str = "GroupMember.java", version: str = genuine.VERSION
) -> Iterator[JavaClient]:
    """A JVM with a program, until the block ends."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "stderr").open("wb") as errors:
        child = subprocess.Popen(
            command(home, program, version),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "HOME": str(home)},
        )
    client = JavaClient(child, version)
    listener = threading.Thread(target=client.listen, name="java client", daemon=True)
    listener.start()
    try:
        client.wait_ready()
        yield client
    finally:
        genuine.stop(child)
        listener.join()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def command(home: Path, program: str, version: str) -> Sequence[str]:
    """Command line of a JVM that compiles and runs a program of tests/interop."""
    options = [f"-Duser.home={home}", "-Xmx256m", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    # It looks for a retry topic that was not there at its start after 20 s otherwise.
    options.append("-Drocketmq.client.rebalance.waitInterval=2000")
    jars = f"{genuine.client_jars(version)}/*"
    return ["java", *options, "-cp", jars, str(PROGRAMS / program)]
