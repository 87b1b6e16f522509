"""Hostile text: no command, page or log passes on what a terminal, browser or reader would obey.

Every command of the command line runs against servers whose every name is hostile, with messages
whose keys, tags, properties and bodies are. A new command without a case here fails.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from xml.etree import ElementTree as ET

import msgspec
import pyarrow as pa
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import roquet
from hostile_relay import HOSTILE, HostileRelay
from roquet.admin import dead_letters
from roquet.broker.ingest.set_aside import TIMER, RecordLocation
from roquet.cli import main
from roquet.client import blocking
from roquet.client.config import ConsumerConfig
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.net.channel import Channel
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.namesrv import ForgetTopic
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.calls.send import SendBack
from roquet.wire.records.message_id import parse_offset_message_id

pytestmark = pytest.mark.attack

TOPIC: Final = "evil"
GROUP: Final = "evilgroup"

CASES: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "produce": ("produce evil -m x", "produce evil -m x --json", "produce no|topic -m x"),
        "consume": (
            "consume evil --count 1", "consume evil --count 1 --json",
            "consume evil --group evilother --from first --count 1",
        ),
        "dlq ls": ("dlq ls", "dlq ls --json"),
        "dlq show": ("dlq show evilgroup", "dlq show evilgroup --json", "dlq show evilno"),
        "dlq resend": (
            "dlq resend evilgroup --all --dry-run", "dlq resend evilgroup --all --yes --json",
            "dlq resend evilgroup --all --again --yes",
        ),
        "set-aside ls": ("set-aside ls", "set-aside ls --json"),
        "set-aside retry": ("set-aside retry --all --dry-run", "set-aside retry evil --yes"),
        "group show": ("group show evilgroup", "group show evilgroup --json", "group show evilno"),
        "group ls": ("group ls", "group ls --system --json"),
        "group create": ("group create evilnew", "group create evilnew --json"),
        "group delete": (
            "group delete evilgroup", "group delete evilnew --dry-run", "group delete evilnew -y",
        ),
        "group fork": (
            "group fork evilgroup --at first --as evilcopy --dry-run",
            "group fork evilgroup --at first --as evilcopy -y --json",
            "group fork evilgroup --at first --as evilother -t evilno",
        ),
        "group reset": (
            "group reset evilother -t evil --to first --dry-run",
            "group reset evilother -t evil --to first --yes --json",
            "group reset evilother -t evilno --to first -y",
        ),
        "topic ls": ("topic ls", "topic ls --system --json"),
        "topic show": ("topic show evil", "topic show evil --json", "topic show evilno"),
        "topic create": ("topic create evilmade --queues 2", "topic create evilmade --json"),
        "topic update": (
            "topic update evil --read-queues 1 --write-queues 2 --yes",
            "topic update evil --perm RW --json",
        ),
        "topic resize": (
            "topic resize evilmade 3 --dry-run", "topic resize evilmade 3 --yes --settle 0",
            "topic resize evilno 3 -y",
        ),
        "topic delete": ("topic delete evilmade --dry-run", "topic delete evilmade --yes --json"),
        "message show": ("message show {id} -t evil", "message show {place} --json"),
        "message find": (
            "message find evil", "message find evil --json", "message find evil --key evil",
        ),
        "message at": ("message at evil broker-a 0 0", "message at evil evilbroker 0 0"),
        "message why-late": (
            "message why-late {id} -t evil", "message why-late {id} -t evil --json",
            "message why-late {id} -t evil --group evilgroup",
        ),
        "mirror": (
            "mirror --from {namesrv} --to {namesrv} --once", "mirror --from evil --to {namesrv}",
        ),
        "cluster show": ("cluster show", "cluster show --json", "cluster show evil"),
        "cluster health": ("cluster health", "cluster health --json"),
        "cluster replicas": (
            "cluster replicas", "cluster replicas --json", "cluster replicas broker-a",
            "cluster replicas evilbroker",
        ),
        "cluster elect": (
            "cluster elect broker-a", "cluster elect broker-a --to evil --unclean --json",
            "cluster elect evilbroker",
        ),
        "cluster retire": (
            "cluster retire broker-a --wait 0", "cluster retire broker-a#1 --json",
            "cluster retire evil",
        ),
        "broker settings": ("broker settings broker-a", "broker settings evil"),
        "broker set": (
            "broker set broker-a pull_enabled=true -y", "broker set broker-a evil=1 --yes",
        ),
        "namesrv settings": ("namesrv settings", "namesrv settings --json"),
        "namesrv set": (
            "namesrv set deleteTopicWithBrokerRegistration=true -y", "namesrv set evil=1 --yes",
        ),
        "broker drain": ("broker drain broker-a --undo", "broker drain evil --wait 0"),
        "support bundle": ("support bundle {directory}/b.tar.gz --data {directory} --json",),
        "dump": ("dump {table}", "dump {table} --json", "dump {log}", "dump {log} --json"),
        "check": ("check {directory}", "check {directory} --json"),
        "balance": ("balance --rooms evil,evil2 --members 2",),
        "spark lag": ("spark lag {page} --every 200ms --for 1s",),
    }
)  # fmt: skip
"""By command, what is run. Braces stand for what the fixture has made."""

ELSEWHERE: Final = MappingProxyType(
    {
        "dev": "its log: test_a_servers_log_is_forged_by_no_client",
        "serve": "its log, which is its children's",
        "controller": "its log, which is written as the broker's",
        "namesrv": "its log: test_a_servers_log_is_forged_by_no_client",
        "broker": "its log: test_a_servers_log_is_forged_by_no_client",
        "dashboard": "its log, which is written as the broker's; its pages: tests/dashboard",
        "proxy": "its log, which is written as the broker's",
        "demo": "shows only names of its own",
        **dict.fromkeys(
            ("profile set", "profile ls", "profile show", "profile use", "profile rm"),
            "show a file of the user's own; by cli.output alone",
        ),
        **dict.fromkeys(
            (
                "acl user list",
                "acl user create",
                "acl user update",
                "acl user delete",
                "acl policy list",
                "acl policy create",
                "acl policy update",
                "acl policy delete",
                "acl export",
                "acl import",
                "acl migrate",
                "acl why",
            ),
            "needs a broker that checks users; shows all by cli.output alone",
        ),
        **dict.fromkeys(("backup", "restore"), "show given paths; by cli.output alone"),
        "health": "shows what the page says; cli/admin/test_health.py has a hostile one",
        "lab run": "shows only names of its own; its page is among PAGES",
        "lab report": "as lab run",
        "lab scenarios": "shows only names of its own",
        "spark archive": "shows the topic that was given; by cli.output alone",
        "spark audit": "needs an archive; its page is among PAGES, its table is made by cli.output",
        "lake query": "needs DuckDB; cli/lake/test_query.py has hostile values in every form",
        "spark materialize": "shows the topic that was given; by cli.output alone",
        "spark maintain": "needs an archive; shows its topic's name by cli.output alone",
        "spark replay": "shows the topic that was given; by cli.output alone",
        "spark repair": "needs an archive; its table is made by cli.output",
    }
)
"""Commands without a case, each with the reason."""


def every_command() -> set[str]:
    def names(command: Any, path: tuple[str, ...]) -> Iterator[str]:
        commands = getattr(command, "commands", {})
        for name, below in commands.items():
            yield from names(below, (*path, name))
        if path and (not commands or command.invoke_without_command):
            yield " ".join(path)

    return {*names(get_command(main.app), ())}


def test_every_command_has_hostile_cases_or_a_reason() -> None:
    assert every_command() == {*CASES, *ELSEWHERE}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """A cluster behind relays that make its names hostile; ids and files for the braces."""
    directory = tmp_path_factory.mktemp("hostile")
    with BlockingCluster(default_queue_count=1, store=directory) as cluster:
        with blocking.Producer(cluster.namesrv_addr) as producer:
            receipt = producer.send(
                TOPIC,
                f"body{HOSTILE}".encode(),
                keys=("evil", re.sub(r"\s", "", HOSTILE)),
                tag=f"tag{HOSTILE}",
                properties={"evil": HOSTILE},
            )
        bury(cluster, receipt.offset_message_id)
        set_aside(cluster)
        config = ConsumerConfig(instance="evilinstance")
        with (
            HostileRelay(cluster.namesrv_addr, *cluster.broker_addrs) as relay,
            blocking.PushConsumer(
                cluster.namesrv_addr, group=GROUP, topic=TOPIC, config=config
            ) as consumer,
        ):
            consumer.next(5_000)
            tables = directory / "broker-a" / "config"
            hostile_table = directory / "topics.json"
            hostile_table.write_text(json.dumps({"k": [HOSTILE, "\u202e", 1], HOSTILE: {}}))
            assert tables.exists()
            yield {
                "namesrv": relay.addresses[cluster.namesrv_addr],
                "id": receipt.message_id,
                "place": receipt.offset_message_id,
                "table": str(hostile_table),
                "log": str(directory / "broker-a" / "commitlog" / f"{0:020}"),
                "directory": str(directory / "broker-a"),
                "page": str(directory / "lag"),
            }


def bury(cluster: BlockingCluster, message_id: str) -> None:
    """Make a dead letter of a message."""

    async def send_back() -> None:
        host, _, port = cluster.broker_addrs[0].rpartition(":")
        channel = await Channel.connect(host, int(port))
        _, position = parse_offset_message_id(message_id)
        await channel.call(SendBack(offset=position, group=GROUP, delay_level=-1))
        await channel.close()
        async with asyncio.timeout(10):
            while GROUP not in await dead_letters.groups(cluster.namesrv_addr):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    asyncio.run(send_back())


def set_aside(cluster: BlockingCluster) -> None:
    """Have the broker set a message aside whose topic and whose fault are hostile text."""
    kept = cluster.brokers[0].broker.delivery.set_aside

    async def keep() -> None:
        kept.keep(
            TIMER, RecordLocation(HOSTILE, 0, 0, 0), ValueError(HOSTILE), raw=HOSTILE.encode()
        )

    cluster.run(keep())


def printed(command: str, places: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """All that a command prints, as a terminal would get it."""
    words = [word.format(**places) for word in command.split()]
    monkeypatch.setenv("NAMESRV_ADDR", places["namesrv"])
    monkeypatch.setattr(sys, "argv", ["roquet", *words])
    with CliRunner().isolation(color=True) as (_, _, output):
        with suppress(SystemExit):
            main.main()
        return output.getvalue().decode()


def problems(text: str) -> list[str]:
    """Characters that a terminal obeys, lines that are forged, and tracebacks."""
    found = [repr(one) for one in text if not one.isprintable() and one not in "\n\t"]
    forged = [line for line in text.split("\n") if line.startswith("2026-01-01 ERROR forged")]
    traces = ["Traceback"] if "Traceback" in text else []
    return found + forged + traces


@pytest.mark.parametrize("name", sorted(CASES))
def test_no_command_passes_on_what_a_terminal_obeys(
    name: str, places: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in CASES[name]:
        text = printed(case, places, monkeypatch)
        assert text.strip(), case
        assert problems(text) == [], (case, text)
        if "--json" in case:
            for line in text.splitlines():
                if line.startswith("{"):
                    json.loads(line)


@pytest.mark.parametrize(
    "case",
    ["consume evil --count 1", "message show {id} -t evil", "dlq show evilgroup", "group ls",
     "topic ls", "topic show evil", "cluster show", "dump {log}", "group show evilgroup"],
)  # fmt: skip
def test_the_hostile_text_is_there_as_escapes(
    case: str, places: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = re.sub(r"\s", "", printed(case, places, monkeypatch))
    assert r"\x1b" in text, text


async def slander(namesrv: str, broker: str) -> None:
    """Tell servers hostile names in all that they log: registrations, groups, transactions."""
    name = f"evil{HOSTILE}"
    host, _, port = namesrv.rpartition(":")
    channel = await Channel.connect(host, int(port))
    await channel.call(
        RegisterBroker(
            broker_name=name, broker_addr=f"10.0.0.1:1{HOSTILE}", cluster_name=name, broker_id=0
        )
    )
    await channel.call(ForgetTopic(topic=name))
    await channel.close()
    host, _, port = broker.rpartition(":")
    channel = await Channel.connect(host, int(port))
    for member, topic in ((name, "a"), (f"{name}2", f"b{HOSTILE}")):
        group = {
            "groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{"topic": topic, "subString": HOSTILE, "subVersion": 1}],
        }  # fmt: skip
        data = {"clientID": member, "consumerDataSet": [group], "producerDataSet": []}
        with suppress(CallRefused):
            await channel.call(Heartbeat(body=json.dumps(data).encode()))
    await channel.close()


def test_a_servers_log_is_forged_by_no_client(tmp_path: Path) -> None:
    words = ["dev", "--memory", "--port", "0", "--namesrv-port", "0", "--host", "127.0.0.1", "-v"]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "roquet", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        try:
            assert process.stdout is not None
            head = [process.stdout.readline().split() for _ in range(3)]
            asyncio.run(slander(head[1][-1], head[2][-1]))
        finally:
            process.terminate()
            process.communicate(timeout=30)
    text = log.read_text("utf-8")
    assert r"\x1b]52;c;eA==\x07" in text, text
    assert problems(text) == []
    margin = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ roquet\.|    ")
    assert [line for line in text.splitlines() if not margin.match(line)] == []


def lag_page() -> str:
    from roquet.lake.lag import lag_page, lag_summary, sampling, trends

    cut = trends.LagForecast(
        state=trends.LagState.FALLING_BEHIND, lag=5, come=5.0, handled=2.0, cut_off_s=60.0
    )
    names = {"group": f"_g{HOSTILE}", "topic": f"t{HOSTILE}", "broker": f"b{HOSTILE}"}
    row = {"queue_id": 0, "begin": 0, "committed": 0, "end": 9, "lag": 9, **names}
    rows = [{"at": 1_769_860_800_000 + 60_000 * n, **row} for n in range(2)]
    one = lag_summary.GroupLag(
        group=names["group"], topic=names["topic"], queues=1, outlook=cut, worst=names["broker"]
    )
    done = lag_summary.LagReport(samples=2, at_ms=1_769_860_860_000, standings=(one,), page=HOSTILE)
    return lag_page.html(done, pa.Table.from_pylist(rows, sampling.SCHEMA))


def audit_page() -> str:
    from roquet.lake.audit import audit_page, audit_report, findings

    gone = findings.AuditFinding(
        what="missing", broker=f"b{HOSTILE}", queue_id=3, start=5, end=8, hour=491_628
    )
    gap = audit_report.RowGap(what="doubled", writer=f"q{HOSTILE}", start=4, end=5, times=2)
    return audit_page.html(
        audit_report.AuditReport(
            topic=f"t{HOSTILE}", table=f"/lake{HOSTILE}", kind="delta", number=3, rows=1200,
            in_topic=1200, waiting=0, begin_known=True, findings=(gone,), row_gaps=(gap,),
            hours=(findings.HourlyCount(hour=491_628, topic=1200, table=1200),),
        )
    )  # fmt: skip


def balance_page() -> str:
    from roquet.cli.balance import compare, report, situation

    given = situation.Situation(
        queues=[MessageQueue(f"t{HOSTILE}", f"b{n}{HOSTILE}", n) for n in range(2)],
        members=[f"m{HOSTILE}"], rooms=[f"r{HOSTILE}"], lag={}, then=situation.MemberChange.JOIN,
        changed_member=f"w{HOSTILE}",
    )  # fmt: skip
    return report.html(given, compare.compare(given, ["AVG"]), [f"line{HOSTILE}"])


def demo_page() -> str:
    from roquet.cli.demo import report
    from roquet.cli.demo.event_log import HandledFlight, QueuesOwned
    from roquet.cli.demo.facts import DemoFacts, TableFacts

    name, queue = f"_consumer{HOSTILE}", f"b{HOSTILE}:0"
    carriers = {f"UA{HOSTILE}": {5: 1}}
    table = TableFacts(rows=1, distinct=1, gaps=0, disordered=0, carriers=carriers)
    return report.html(
        DemoFacts(flights=1, sent=1, stored=1, handled=1, twice=0, table=table),
        report.DemoTimeline(
            sent_ms=[0], books={name: [HandledFlight(0, 200)]},
            owned={name: [QueuesOwned(0, (queue,))]},
            ends_ms={name: 500}, moments=[(500, f"killed{HOSTILE}")], end_ms=1000,
        ),
    )  # fmt: skip


def failover_page() -> str:
    from demos.failover import report, timeline
    from demos.failover.facts import FailoverFacts
    from demos.failover.flight_table import TableCounts

    broker, name = f"broker{HOSTILE}", f"killed{HOSTILE}"
    fault = timeline.MasterFault(
        name=name, at_ms=100, mended_ms=200, before=broker, after=broker, pause_ms=50
    )
    counts = TableCounts(messages=1, rows=1, conflicts=0, disordered=0, found=1)
    state = timeline.BrokerState.LEADS
    return report.html(
        FailoverFacts(arrived=1, sent=1, failures=0, stored=1, table=counts, faults=[fault]),
        timeline.FailoverTimeline(
            brokers=[broker],
            arrived_ms=[0],
            acknowledged=[
                timeline.Acknowledgement(row=0, queue_id=0, offset=0, at_ms=5, broker=broker)
            ],
            samples=[timeline.BrokerSample(at_ms=0, broker=broker, state=state, confirmed=1)],
            faults=[fault],
            moments=[(100, name)],
            end_ms=500,
        ),
    )


def lab_page() -> str:
    from roquet.lab import report, summary
    from roquet.lab.invariants import InvariantResult
    from roquet.lab.scenario import PRESETS
    from roquet.lab.study import Study

    figure = summary.MeasureStatistics(
        count=1, mean=1.0, margin=0.1, low=0.5, median=1.0, high=2.0, most=2.0
    )
    measures = {want.measure: figure for want in summary.GOALS} | {"stranded": figure}
    own = msgspec.structs.replace(PRESETS["churn"], name=f"churn{HOSTILE}", about=f"about{HOSTILE}")
    names = (f"AVG{HOSTILE}", f"STICKY{HOSTILE}")
    part = summary.ScenarioSummary(
        name=own.name,
        figures=dict.fromkeys(names, measures),
        choices=tuple(
            summary.GoalChoice(measure=want.measure, best=names[:1], of=2) for want in summary.GOALS
        ),
    )
    claim = InvariantResult(text=f"text{HOSTILE}", found=f"found{HOSTILE}", holds=False)
    study = Study(scenarios=(own,), strategies=names, histories=1, seed=1)
    return report.html(summary.StudySummary(study=study, rows=2, parts=(part,), claims=(claim,)))


PAGES: Final = MappingProxyType(
    {
        "roquet.lake.lag.lag_page": lag_page,
        "roquet.lake.audit.audit_page": audit_page,
        "roquet.lab.report": lab_page,
        "roquet.cli.balance.report": balance_page,
        "demos.failover.report": failover_page,
        "roquet.cli.demo.report": demo_page,
    }
)
"""By the module that makes it, a page of hostile names."""

SOURCES: Final = Path(roquet.__file__).parent, Path(__file__).parents[2] / "demos"


def modules_that_say(words: str) -> set[str]:
    return {
        ".".join(path.relative_to(source.parent).with_suffix("").parts)
        for source in SOURCES
        for path in source.rglob("*.py")
        if re.search(words, path.read_text("utf-8"))
    }


def test_every_page_has_a_hostile_case() -> None:
    assert modules_that_say(r"from roquet\.pictures\.page import .*\bpage\b") == {*PAGES}
    assert modules_that_say(r"<!doctype") == {"roquet.pictures.page"}


class _Tags(HTMLParser):
    """The tags of a page, and the values of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.values: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.values += [value for name, value in attrs if value and name not in {"d", "points"}]
        self.values += [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_no_page_passes_on_what_a_browser_obeys(name: str) -> None:
    text = PAGES[name]()
    assert "{x}$x$" in text, "the end of the hostile text"
    assert [repr(one) for one in text if not one.isprintable() and one not in "\n\N{NBSP}"] == []
    found = _Tags()
    found.feed(text)
    assert not found.tags & {"script", "link", "img", "iframe", "a"}
    assert [value for value in found.values if "forged" in value or "http://x" in value] == []
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(picture)
