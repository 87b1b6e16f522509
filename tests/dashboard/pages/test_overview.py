from typing import Any

import msgspec
import pytest
from tests.dashboard.conftest import Site, browse

from roquet.admin import topics
from roquet.admin.brokers import BrokerStatus
from roquet.admin.group_info import GroupInfo, GroupMemberInfo
from roquet.admin.topics import TopicSettings
from roquet.dashboard.pages.overview import LISTED_MAX, cluster_problems
from roquet.dashboard.sampling.jobs import JobRow, JobSampler
from roquet.dashboard.sampling.role_changes import ClusterEvent
from roquet.dashboard.sampling.sampler import ClusterSample, Sampler

pytestmark = pytest.mark.virtual_time


async def test_the_overview_says_that_there_are_no_problems(site: Site) -> None:
    await topics.create(site.admin, "orders", TopicSettings())
    for _ in range(2):
        await site.clock.sleep(1_000)
        await site.browser.dashboard.sampler.step()
    facts = await site.browser.facts("/")
    assert (facts["brokers"], facts["topics"], facts["problems"]) == (2, 1, [])
    html = await site.browser.text("/")
    assert "no problems" in html
    assert 'aria-label="Lag of all groups from' in html
    assert 'aria-label="Messages in and out from' in html
    assert "First steps" not in html


async def test_a_cluster_that_is_away_is_a_problem(site: Site) -> None:
    for number in range(2):
        await site.running.stop_broker(number)
    await site.browser.dashboard.sampler.step()
    facts = await site.browser.facts("/")
    assert "the newest sample is not whole" in facts["problems"][0]["text"]


async def test_an_empty_cluster_says_what_to_do_first(site: Site) -> None:
    await site.browser.dashboard.sampler.step()
    html = await site.browser.text("/")
    assert "roquet topic create orders" in html
    assert site.namesrv in html
    for number in range(2):
        await site.running.stop_broker(number)
    await site.settle()
    await site.browser.dashboard.sampler.step()
    assert "roquet broker --namesrv" in await site.browser.text("/")


async def test_the_overview_has_brokers_dead_letters_and_the_last_changes(site: Site) -> None:
    await site.browser.post("/topics", {"name": "orders", "queues": "1"})
    sampler = site.browser.dashboard.sampler
    sampler.events.append(ClusterEvent(at_ms=1, text="b: h:2 is master now", path="/brokers/b"))
    await sampler.step()
    facts = await site.browser.facts("/")
    assert [(line["broker"], line["role"]) for line in facts["broker_lines"]] == [
        ("broker-a", "master"),
        ("broker-b", "master"),
    ]
    assert [one["text"] for one in facts["changes"]] == [
        "topic.create orders",
        "b: h:2 is master now",
    ]
    assert (facts["letters"], facts["jobs"], facts["jobs_behind"]) == ([], 0, [])
    html = await site.browser.text("/")
    assert "Jobs that are behind" not in html


async def test_jobs_that_are_behind_are_named(site: Site) -> None:
    late = JobRow(
        table="t", job="archive", topic="orders", commits=1, committed_ms=1, looked_ms=1, lag=4,
        lag_s=90.0, state="catching up",
    )  # fmt: skip
    done = msgspec.structs.replace(late, topic="clicks", state="caught up")
    jobs = JobSampler(lambda _table: [late, done], ["t"], site.clock)
    await jobs.step()
    await site.browser.dashboard.sampler.step()
    async with browse(msgspec.structs.replace(site.browser.dashboard, jobs=jobs)) as browser:
        facts = await browser.facts("/")
        assert (facts["jobs"], [row["topic"] for row in facts["jobs_behind"]]) == (2, ["orders"])
        assert "1 min 30 s" in await browser.text("/")


async def test_before_the_first_sample_the_overview_says_so(site: Site) -> None:
    idle = msgspec.structs.replace(
        site.browser.dashboard, sampler=Sampler(site.admin, period_ms=10_000)
    )
    async with browse(idle) as browser:
        assert "sampled for the first time" in await browser.text("/")


def broker(fault: str | None = None, **info: str) -> BrokerStatus:
    return BrokerStatus(
        cluster="c", broker="broker-a", broker_id=0, address="h:1", info=info, fault=fault
    )


def group(
    name: str, lag: int, *, members: int = 0, problems: tuple[str, ...] = (), **letters: Any
) -> GroupInfo:
    one = GroupMemberInfo(
        client_id="c", address="h:2", language=None, version=0, subscriptions=None, strategy=None
    )
    return GroupInfo(
        name=name, message_model=None, consume_type=None, lag=lag, members=[one] * members,
        queues=[], assignments=[], problems=list(problems), **letters,
    )  # fmt: skip


def sample(
    *brokers: BrokerStatus, groups: tuple[GroupInfo, ...] = (), problem: str = ""
) -> ClusterSample:
    return ClusterSample(
        at_ms=0, took_ms=0, brokers=list(brokers), topics={},
        groups={one.name: one for one in groups}, problems=[problem] if problem else [],
    )  # fmt: skip


def texts(shown: ClusterSample, **silent: str) -> list[str]:
    return [problem.text for problem in cluster_problems(shown, silent)]


def test_a_healthy_cluster_has_no_problems() -> None:
    fine = broker(commitLogDiskRatio="0.50", setAsideTotal="0", brokerActive="true")
    assert texts(sample(fine, groups=(group("a", 5, members=1), group("b", 0)))) == []


def test_replicas_that_are_not_in_sync_are_named() -> None:
    one = sample(broker())
    shown = msgspec.structs.replace(one, replica_problems=["broker-a 1 at h:2 is not in sync"])
    assert texts(shown) == ["broker-a 1 at h:2 is not in sync"]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (broker("refused"), "broker-a#0 does not answer: refused"),
        (broker(commitLogDiskRatio="0.91"), "broker-a#0: 91% of its disk is in use"),
        (broker(setAsideTotal="2"), "broker-a#0 has set aside 2 messages that it cannot handle"),
        (broker(brokerActive="false"), "broker-a#0 is not active: it serves nobody"),
    ],
)
def test_what_is_wrong_with_a_broker_is_a_sentence(one: BrokerStatus, text: str) -> None:
    assert texts(sample(one)) == [text]


def test_a_group_without_members_is_a_problem_once_it_has_work() -> None:
    assert texts(sample(groups=(group("a", 1),))) == ["a: 1 message to handle, and no member"]
    assert texts(sample(groups=(group("a", 0, problems=("x", "y")),))) == ["a: x (and 1 more)"]


def test_dead_letters_are_a_problem_until_they_were_sent_again() -> None:
    letters: Any = {"dead_letters": 140, "dead_letters_not_resent": 139}
    (problem,) = cluster_problems(sample(groups=(group("a", 0, members=1, **letters),)), {})
    assert (problem.text, problem.path) == ("a: 139 dead letters not sent again", "/dead-letters/a")
    resent = group("a", 0, members=1, dead_letters=140, dead_letters_not_resent=0)
    unknown = group("b", 0, members=1, dead_letters=140, dead_letters_not_resent=None)
    assert texts(sample(groups=(resent, unknown))) == ["b: 140 dead letters not sent again"]


def test_a_group_whose_members_are_not_known_is_not_said_to_have_none() -> None:
    unknown = msgspec.structs.replace(group("a", 7, problems=("refused",)), members=None)
    assert texts(sample(groups=(unknown,))) == ["a: refused"]


def test_name_servers_and_samples_come_first() -> None:
    shown = texts(sample(broker("gone"), problem="timeout"), h1="refused")
    assert shown[0] == "the newest sample is not whole: timeout"
    assert shown[1] == "name server h1 does not answer: refused"


def test_many_problems_are_counted() -> None:
    many = tuple(group(f"g{number}", 1) for number in range(LISTED_MAX + 5))
    shown = texts(sample(groups=many))
    assert (len(shown), shown[-1]) == (LISTED_MAX + 1, "and 5 more problems")


def test_odd_numbers_of_a_broker_are_not_known() -> None:
    values = [broker(key=text).number("key") for text in ("-1", "nan", "inf", "x", "", "0.5")]
    assert values == [None, None, None, None, None, 0.5]
    assert broker().number("commitLogDiskRatio") is None
