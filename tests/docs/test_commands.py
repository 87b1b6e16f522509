"""Every command that a page shows runs in an environment that has what the page says to install.

A page is typed as a user would type it: its commands one after the other, in an empty directory,
beside a broker that holds the topics and groups that the page speaks of.
"""

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import exact_environment
from harness.ports import free_port
from roquet.client import blocking
from roquet.net.channel import Channel
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.send import SendBack
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.signing import Credentials

pytestmark = [pytest.mark.docs, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
VECTORS: Final = ROOT / "tests" / "vectors"

SERVED: Final = (-30, -1, 10, 20, 30, 1_000)
"""From the port of a first broker to those of three more, of replicas, and of other servers."""

INSTALL: Final = re.compile(r"pip install\s+'roquet\[([a-z,]+)\]'")
INLINE: Final = re.compile(r"`(roquet [^`]+)`")
NEEDY: Final = re.compile(r"roquet (spark|lab|dashboard|proxy)\b|roquet .*--(dashboard|grpc-port)")
"""Commands that need what their page says to install."""

SERVER: Final = re.compile(r"roquet (dev|serve|proxy|namesrv(?! set)|controller|broker -c)\b")
ENDLESS: Final = re.compile(r"roquet consume\b(?!.*(--count|>>))|--every 5s|--watch")
"""They run until Ctrl-C."""

ELSEWHERE: Final = {
    r".*…|roquet spark lag DIR": "a form with a placeholder",
    r"roquet (dlq|set-aside|topic|group|message|spark \w+)$": "the name of a command",
    r"roquet (namesrv|broker) .*(tls|advertise)": "client/connection/test_security.py has them",
    r"roquet (consume|message find) (TRANS_CHECK|RMQ_SYS_TRACE)": "needs a given-up transaction",
    r".* sc://": "spark_suite/test_spark_connect.py has a server for them",
    r"roquet dashboard\b": "cli/servers/test_dashboard.py has them: they need a port and a browser",
    r"roquet lake ": "cli/lake/test_query.py has them, where DuckDB is installed",
    r".* thrift://": "interop/test_hive_metastore.py has a metastore for them",
    r".* s3://": "test_topic_to_lake.py and tests/spark_suite have a server for them",
    r"roquet produce greetings -m hello": "needs the name server with TLS of the line before it",
    r"roquet mirror ": "cli/admin/test_mirror.py has two clusters for them",
    r"roquet cluster (elect|retire)": "cli/servers/test_supervisor.py has them, with a controller",
    r"roquet serve .*--access-file": "needs the file of its own broker-a, from its first start",
    r"roquet broker drain": "it waits for 35 s; cli/admin/test_broker.py has it",
    r"roquet health": "needs the server of the line before it; cli/admin/test_health.py has it",
    r"roquet proxy .*--tls-cert": "proxy/test_public_port.py has them, with a certificate",
    r"roquet proxy .*--access-file": "proxy/test_access.py has them, with users",
    r"roquet controller --store etcd.https": "controller/state_store/test_etcd.py has one",
    r"roquet dev .*--advertise mq": "needs a machine of that name",
}
"""Patterns of commands that are not run here, and why."""

SMALLER: Final[Mapping[str, str]] = {
    r" --master spark://\S+": "",
    r"--namesrv 10\.0\.0\.1:9876": "--namesrv 127.0.0.1:1",
    r"(?<= )/lake": "lake",
    r"--every 10s --for 10m": "--every 1s --for 3s",
    r"--histories [\d_]+": "--histories 6",
    r" &$": "",
}
"""A cluster of Spark becomes this machine, long runs become short ones."""

SEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "README.md": ("orders",),
    "archive.md": ("Orders",),
    "archive-columns.md": ("Orders",),
    "archive-iceberg.md": ("Orders",),
    "archive-maintenance.md": ("Orders",),
    "consume.md": ("orders",),
    "filters.md": ("Sales",),
    "lag-and-audit.md": ("orders",),
    "materialize.md": ("Accounts",),
    "operating.md": ("Orders",),
    "replay-and-repair.md": ("orders",),
    "schedule.md": ("orders",),
    "seek-and-pause.md": ("Orders",),
    "send.md": ("Orders",),
    "why-late.md": ("orders",),
}
"""The topics that a page takes for granted; its group is `billing`, which gave up a message."""

SUPER_USER: Final = Credentials(access_key="root", secret_key="change-me")
CHECKED: Final[Mapping[str, Mapping[str, Any]]] = {
    "secure.md": {
        "authentication_enabled": True, "authorization_enabled": True, "initial_user": SUPER_USER,
    },
}  # fmt: skip
"""Settings of the brokers of pages whose cluster checks users; their commands are the super
user's."""

BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "roquet topic create Orders --queues 4": ("roquet topic delete Orders --yes",),
    "roquet group create billing --retries 3": ("roquet group delete billing --yes",),
    "roquet group create billing --no-enabled": ("roquet group delete billing --yes",),
    "roquet group delete audit": ("roquet group create audit",),
    "roquet group reset billing --topic Orders --to first --dry-run": (
        "roquet group create billing --enabled",
        "roquet group reset billing --topic Orders --to first --yes",
    ),
    "roquet group fork billing --at 14:00 --as billing-replay --dry-run": (
        "roquet group reset billing --topic orders --to first --create --yes",
    ),
    "roquet spark maintain lake/orders --keep 90d": ("roquet spark archive Orders lake/orders",),
    "roquet spark lag --table lake/orders": ("roquet spark archive orders lake/orders",),
    "roquet spark audit orders lake/orders": ("roquet spark archive orders lake/orders",),
    "roquet spark replay lake/orders OrdersAgain": (
        "roquet spark archive orders lake/orders",
        "roquet topic create OrdersAgain",
    ),
    "roquet topic create OrdersAgain": ("roquet topic delete OrdersAgain --yes",),
    "roquet topic create orders --queues 4": ("roquet topic delete orders --yes",),
}
"""What a page has told in words, or by a step of another page, before it shows a command."""

FAILS: Final[Mapping[str, int]] = {
    r"roquet group reset .* --to 1795909285": 2,  # seconds in the place of ms
    r"roquet message show C": 1,  # an id of the page's own cluster
    r"roquet message why-late 7F": 2,  # an id of the page's own cluster
    r"roquet message show 7F": 2,  # an id of the page's own cluster
    r"roquet message find \S+ --from 2026-01-31": 1,  # nothing is that old here
    r"roquet message find RMQ_SYS_TRACE_TOPIC": 1,
    r"roquet message at Orders broker-a 3 1$": 2,
    r"roquet group show billing": 1,  # nobody is in the group
    r"roquet topic show": 1,
    r"roquet cluster health --brokers 5": 1,
    r"roquet topic ls --profile prod": 2,  # its secret comes from another program
    r'roquet consume Sales --sql "amount >> 5"': 2,
    r"roquet spark repair .*--where": 1,
    r"roquet spark repair .*--id": 2,
    r"roquet spark audit .*--producer": 1,
    r"roquet spark lag lake": 1,  # somebody will not catch up
}
"""Commands that the page shows failing, or that cannot succeed on other messages than its own."""

ANSWERS: Final = " --yes"
ASKS: Final = re.compile(
    r"roquet (topic (delete|resize|update)|group (delete|reset(?!.*--dry))|dlq resend"
    r"|(broker|namesrv) set|acl (user delete|policy delete|import))\b"
)


RUN_MAX_S: Final = 150
"""A command of a page that takes longer hangs."""


class Command(NamedTuple):
    """A command of a page."""

    line: int
    text: str


def commands(page: Path) -> Iterator[Command]:
    """The roquet commands of a page's blocks, in their order, and the README's in sentences."""
    language: str | None = None
    pending = ""
    told, _, _ = page.read_text("utf-8").partition("\n## Tour, part ")  # test_operators_tour.py
    for number, line in enumerate(told.splitlines(), 1):
        if line.startswith("```"):
            language = None if language is not None else line.strip("`").strip()
        elif language in ("", "sh", "console"):
            text = pending + line.strip().removeprefix("$ ")
            pending = text[:-1] if text.endswith("\\") else ""
            if text.startswith("roquet ") and not pending:
                yield Command(number, re.split(r"\s{2,}#", text)[0].strip())
        elif language is None and page == ROOT / "README.md":
            yield from (Command(number, text) for text in INLINE.findall(line))


def is_run(command: Command) -> bool:
    return not any(re.match(form, command.text) for form in ELSEWHERE)


def environment_of(page: Path, command: str) -> str:
    """The install line that a command of a page needs by what the page says."""
    extras = set(INSTALL.findall(page.read_text("utf-8"))) if NEEDY.match(command) else set()
    return f"roquet[{','.join(sorted(extras or {'server'}))}]"


SharedDirectory = Callable[[str], AbstractContextManager[Path]]


class Environments:
    """The environments of install lines, each made when it is first asked for."""

    def __init__(self, shared_directory: SharedDirectory, wheel: Path) -> None:
        self._shared_directory = shared_directory
        self._wheel = wheel

    def programs(self, line: str) -> Path:
        """The folder of an environment's programs."""
        with self._shared_directory(re.sub(r"\W+", "-", line)) as directory:
            programs = directory / "bin"
            if not (programs / "roquet").exists():
                programs = exact_environment.make(directory, line, self._wheel)
        return programs


@pytest.fixture(scope="session")
def environments(shared_directory: SharedDirectory, wheel: Path) -> Environments:
    return Environments(shared_directory, wheel)


def seed(cluster: BlockingCluster, topics: tuple[str, ...]) -> None:
    """Forty messages in each topic, and one that the group billing has given up."""
    with blocking.Producer(cluster.namesrv_addr) as producer:
        for topic in (*topics, "billed"):
            body = partial('{{"amount": {}}}'.format)
            receipts = [
                producer.send(topic, body(n).encode(), keys=[f"A-{n}"], tag="new")
                for n in range(40)
            ]
    asyncio.run(give_up(cluster, receipts[0].offset_message_id))


async def give_up(cluster: BlockingCluster, offset_message_id: str) -> None:
    host, _, port = cluster.broker_addrs[0].rpartition(":")
    channel = await Channel.connect(host, int(port))
    _, position = parse_offset_message_id(offset_message_id)
    await channel.call(SendBack(offset=position, group="billing", delay_level=-1))
    await channel.close()


class Terminal:
    """Runs commands of a page in its directory and environment."""

    def __init__(self, page: Path, directory: Path, environments: Environments, addr: str) -> None:
        self._page = page
        self._directory = directory
        self._environments = environments
        self._addr = addr

    def start(self, command: str) -> "subprocess.Popen[str]":
        programs = self._environments.programs(environment_of(self._page, command))
        for long, short in SMALLER.items():
            command = re.sub(long, short, command)
        name, *arguments = shlex.split(command)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK"))}
        return subprocess.Popen(
            [programs / name, *arguments],
            cwd=self._directory,
            env={
                **kept,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "NAMESRV_ADDR": self._addr,
                **self._keys(),
                "HOME": str(self._directory),
                "XDG_CONFIG_HOME": str(self._directory),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _keys(self) -> dict[str, str]:
        """Keys of the super user, where the page's cluster checks users."""
        if self._page.name not in CHECKED:
            return {}
        return {
            "ROCKETMQ_ACCESS_KEY": SUPER_USER.access_key,
            "ROCKETMQ_SECRET_KEY": SUPER_USER.secret_key,
        }

    def run(self, command: str) -> tuple[int, str]:
        """Run a command to its end; its exit code and what it said."""
        with self.start(command + ANSWERS if ASKS.match(command) else command) as process:
            return ended(process)

    def interrupt(self, command: str) -> tuple[int, str]:
        """Press Ctrl-C once a command has said something."""
        with self.start(command) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            code, rest = ended(process)
            return code, first + rest

    def serve(self, command: str) -> tuple[int, str]:
        """Stop a server in good order once it is ready."""
        (self._directory / "broker.conf").write_text("brokerName = broker-c\n")
        any_port = dict.fromkeys(("namesrv", "controller", "broker", "proxy"), " --port 0")
        ports = {"dev": " --port 0 --namesrv-port 0", **any_port}
        first = free_port(*SERVED)
        free = ports.get(command.split()[1], f" --port {first} --namesrv-port {first - 1}")
        free += " --grpc-port 0" if "--grpc-port " in command else ""
        free += " --controller-port 0" if "--controller " in command else ""
        free += f" --controller-port {first - 30}" if "--controllers " in command else ""
        output = ""
        with self.start(command.removesuffix(" &") + free) as process:
            assert process.stdout is not None
            for line in process.stdout:
                output += line
                if "ready" in line or "listens" in line:
                    break
            process.send_signal(signal.SIGTERM)
            code, rest = ended(process)
            return code, output + rest


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit code of a process and the rest of what it says; one that hangs is killed."""
    try:
        output, _ = process.communicate(timeout=RUN_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += f"(killed after {RUN_MAX_S} s)"
    return process.returncode, output


def files_of(page: Path, directory: Path) -> None:
    """The files that a page's commands read: those that it shows, and counts of a producer."""
    text = page.read_text("utf-8")
    for name, shown in re.findall(r"`(\w+\.json)`[^`]*```json\n(.*?)```", text, re.DOTALL):
        (directory / name).write_text(shown)
    for name, shown in re.findall(r"```\n# (\w+\.conf);.*\n(.*?)```", text, re.DOTALL):
        (directory / name).write_text(shown)
    if page.name in CHECKED:
        shutil.copy(VECTORS / "auth" / "plain_acl.yml", directory)
        (directory / "shop.secret").write_text("hush-hush\n")
    (directory / "counts.json").write_text('[{"hour": "2026-01-31T12:00", "count": 40}]')


def expected(command: str) -> tuple[int, ...]:
    if ENDLESS.search(command):
        return (0 if "--watch" in command else 130,)
    return next(((0, code) for form, code in FAILS.items() if re.match(form, command)), (0,))


SHOWN: Final = {page: [c for c in commands(page) if is_run(c)] for page in PAGES}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SHOWN[page]], ids=lambda page: page.stem
)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, environments: Environments) -> None:
    files_of(page, tmp_path)
    with BlockingCluster(**CHECKED.get(page.name, {})) as cluster:
        if page.name not in CHECKED:
            seed(cluster, SEEDED.get(page.name, ()))
        terminal = Terminal(page, tmp_path, environments, cluster.namesrv_addr)
        wrong = []
        for command in dict.fromkeys(command.text for command in SHOWN[page]):
            for step in BEFORE.get(command, ()):
                terminal.run(step)
            act = terminal.serve if SERVER.match(command) else terminal.run
            act = terminal.interrupt if ENDLESS.search(command) else act
            code, output = act(command)
            if code not in expected(command) or "Traceback" in output:
                wrong.append(f"$ {command}\n{output}\nexit code {code}")
    assert not wrong, "\n\n".join(wrong)


def test_pages_show_commands() -> None:
    assert sum(map(len, SHOWN.values())) > 60


def test_the_program_of_the_readme_runs_as_described(
    tmp_path: Path, environments: Environments
) -> None:
    (program,) = re.findall(
        r"```python\n(import asyncio\n.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    with BlockingCluster() as cluster:
        text = program.replace("127.0.0.1:9876", cluster.namesrv_addr)
        (tmp_path / "program.py").write_text(text)
        with subprocess.Popen(
            [environments.programs("roquet") / "python", "-u", "program.py"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            code, rest = ended(process)
    assert (first.split(" ", 1)[1], code) == ("paid b'42 EUR'\n", 0), first + rest
