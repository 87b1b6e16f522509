"""Access control of both sides: mqadmin's commands, and decisions on policies made by chance."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest
from tests.interop.test_mqadmin import MqAdmin
from tests.interop.test_secured import ACCESS_CONTROL, KEYS

from harness import genuine
from roquet.model.access import AccessDecision, Action, PolicyType
from roquet.model.errors import CallRefused
from roquet.net.address import split_address
from roquet.net.channel import Channel, Security
from roquet.testing.cluster import BlockingCluster
from roquet.wire.call import Call
from roquet.wire.calls.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteUser,
    ListAcls,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.topic import CreateTopic, DeleteGroup
from roquet.wire.calls.offset import MaxOffset, QueryOffset, UpdateOffset
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.signing import Credentials, Signer

pytestmark = pytest.mark.interop

ROOT = Credentials(**KEYS)


class Side(NamedTuple):
    """One cluster that checks users."""

    broker: str
    namesrv: str

    def printed(self, mqadmin: MqAdmin, words: str) -> str:
        """What a command prints, without the addresses of this side."""
        return mqadmin(words).replace(self.broker, "BROKER").replace(self.namesrv, "NAMESRV")


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    """A broker of ours that checks users."""
    with BlockingCluster(
        authentication_enabled=True, authorization_enabled=True, initial_user=ROOT
    ) as running:
        yield Side(running.broker_addrs[0], running.namesrv_addr)


@pytest.fixture(scope="module")
def theirs(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """A genuine broker that checks users."""
    folder = tmp_path_factory.mktemp("guarded")
    with genuine.cluster(folder, **ACCESS_CONTROL) as running:
        yield Side(running.broker, running.namesrv)


@pytest.fixture
def mqadmin(java: None, tmp_path: Path) -> Iterator[MqAdmin]:
    """Runs commands as the super user."""
    folder = tmp_path / "conf"
    folder.mkdir()
    keys = f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n"
    (folder / "tools.yml").write_text(keys)
    with contextlib.closing(MqAdmin(tmp_path)) as running:
        yield running


ORDERS: Final = "-r Topic:orders -a Pub,Sub -d Allow -i 10.0.0.0/8"
BILLS: Final = "-r Topic:bills-*,Group:* -a Sub -d Deny"

COMMANDS: Final = (
    "createUser -u alice -p alicesecret -t Normal",
    "createUser -u alice -p other -t Normal",
    "createUser -u boss -p bosssecret -t Super",
    "updateUser -u alice -p second",
    "updateUser -u alice -s disable",
    "updateUser -u nobody -p p",
    "getUser -u alice",
    "getUser -u nobody",
    "listUser -f ali",
    f"createAcl -s User:alice {ORDERS}",
    f"createAcl -s User:nobody {ORDERS}",
    "createAcl -s User:alice -r Bogus:x -a Pub -d Allow",
    f"updateAcl -s User:alice {BILLS}",
    "getAcl -s User:alice",
    "getAcl -s User:nobody",
    "listAcl -s alice",
    "listAcl -r bills",
    "deleteAcl -s User:alice -r Topic:orders",
    "getAcl -s User:alice",
    "deleteAcl -s User:alice",
    "listAcl -s alice",
    "deleteUser -u alice",
    "deleteUser -u boss",
    "listUser -f ali",
)


ON_CLUSTER: Final = (
    "createUser -u carol -p carolsecret -t Normal",
    "updateUser -u carol -p second",
    "getUser -u carol",
    "listUser -f car",
    f"createAcl -s User:carol {ORDERS}",
    f"updateAcl -s User:carol {BILLS}",
    "getAcl -s User:carol",
    "listAcl -s carol",
    "deleteAcl -s User:carol -r Topic:orders",
    "deleteUser -u carol",
)
"""Commands with `-c`: name servers say which brokers there are."""


def test_mqadmins_commands_on_users_and_policies_say_the_same(
    mqadmin: MqAdmin, ours: Side, theirs: Side
) -> None:
    mqadmin(f"getUser -u nobody -b {ours.broker}")  # the first one also shows how it begins to log
    differences = {}
    for words in COMMANDS:
        got, wanted = (
            side.printed(mqadmin, f"{words} -b {side.broker}") for side in (ours, theirs)
        )
        if got != wanted:
            differences[words] = got, wanted
    for words in ON_CLUSTER:
        got, wanted = (
            side.printed(mqadmin, f"{words} -c DefaultCluster -n {side.namesrv}")
            for side in (ours, theirs)
        )
        if got != wanted:
            differences[words] = got, wanted
    assert differences == {}


def test_mqadmin_copies_users_and_policies_from_our_broker_to_apaches_and_back(
    mqadmin: MqAdmin, ours: Side, theirs: Side
) -> None:
    for source, target, name in ((ours, theirs, "going"), (theirs, ours, "coming")):
        ways = f"-f {source.broker} -t {target.broker}"
        mqadmin(f"createUser -u {name} -p secret -t Normal -b {source.broker}")
        mqadmin(f"createAcl -s User:{name} {ORDERS} -b {source.broker}")
        copied = mqadmin(f"copyUser {ways} -u {name}") + mqadmin(f"copyAcl {ways} -s User:{name}")
        assert f"copy user of {name}" in copied
        assert f"copy acl of User:{name}" in copied
        for words in (f"getUser -u {name}", f"getAcl -s User:{name}"):
            shown = {side.printed(mqadmin, f"{words} -b {side.broker}") for side in (ours, theirs)}
            assert len(shown) == 1
            assert name in shown.pop()


NAMES: Final = ("a", "ab", "abc", "b")
RESOURCES: Final = (
    "*",
    *(
        f"{kind}:{name}"
        for kind in ("Topic", "Group")
        for name in ("*", "a*", "ab*", "abc*", *NAMES)
    ),
    "Cluster:*",
    "Cluster:DefaultCluster",
    "Cluster:Other",
)
SOURCES: Final = (None, None, ["127.0.0.1"], ["127.0.0.0/8"], ["10.0.0.0/8"], ["10.0.0.1", "::1"])
POLICIES: Final = 200
REQUESTS: Final = 8
"""Requests of each user."""


class Case(NamedTuple):
    """A user's policies, and what he asks for."""

    name: str
    policies: list[PolicyInfo]
    requests: list[Call[Any]]


def case(number: int) -> Case:
    """The case of a seed."""
    rng = Random(number)
    entries = {kind: [entry(rng) for _ in range(rng.randrange(5))] for kind in PolicyType}
    policies = [
        PolicyInfo(policy_type=str(kind), entries=some) for kind, some in entries.items() if some
    ]
    return Case(f"user{number}", policies, [request(rng) for _ in range(REQUESTS)])


def entry(rng: Random) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=rng.choice(RESOURCES),
        actions=[str(action) for action in rng.sample([*Action], rng.randint(1, 4))],
        source_ips=rng.choice(SOURCES),
        decision=str(rng.choice([*AccessDecision])),
    )


def request(rng: Random) -> Call[Any]:
    """A request that needs rights on a topic, a group, both or the cluster."""
    topic, group = rng.choice(NAMES), rng.choice(NAMES)
    place: dict[str, Any] = {"consumer_group": group, "topic": topic, "queue_id": 0}
    sent = rng.choice((topic, f"%RETRY%{group}"))
    return rng.choice(
        (
            Send(producer_group="p", topic=sent, queue_id=0, born_timestamp=1, body=b"x"),
            Pull(
                **place, queue_offset=0, max_msg_nums=1, sys_flag=4, commit_offset=0,
                suspend_timeout_millis=0, sub_version=0, subscription="*", expression_type="TAG",
            ),
            MaxOffset(topic=topic, queue_id=0),
            QueryOffset(**place),
            UpdateOffset(**place, commit_offset=0),
            GetConnections(consumer_group=group),
            CreateTopic(
                topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
                topic_sys_flag=0,
            ),
            DeleteGroup(group_name=group),
            ListAcls(subject_filter="none"),
            DeleteUser(username="nobody"),
        )
    )  # fmt: skip


async def verdicts(address: str, cases: list[Case]) -> dict[tuple[str, int], str | None]:
    """The remark of each refused request; None for one that is allowed, whatever becomes of it."""
    host, port = split_address(address)
    root = await Channel.connect(host, port, security=Security(signer=Signer(ROOT)))
    found: dict[tuple[str, int], str | None] = {}
    for one in cases:
        await root.call(
            CreateUser(username=one.name, body=codec.dumps(UserInfo(password="secret")))
        )
        if one.policies:
            acl = AclInfo(policies=one.policies)
            await root.call(CreateAcl(subject=f"User:{one.name}", body=codec.dumps(acl)))
        signer = Signer(Credentials(access_key=one.name, secret_key="secret"))
        channel = await Channel.connect(host, port, security=Security(signer=signer))
        for number, call in enumerate(one.requests):
            found[one.name, number] = await refusal(channel, call)
        await channel.close()
    await root.close()
    return found


async def refusal(channel: Channel, call: Call[Any]) -> str | None:
    try:
        await channel.call(call, 10_000)
    except CallRefused as refused:
        if refused.code == ResponseCode.NO_PERMISSION:
            return refused.remark or ""
    return None


def test_two_hundred_policies_decide_alike(ours: Side, theirs: Side) -> None:
    cases = [case(number) for number in range(POLICIES)]
    got = asyncio.run(verdicts(ours.broker, cases))
    wanted = asyncio.run(verdicts(theirs.broker, cases))
    differences = [
        f"{one.policies}\n{call}\n  ours: {got[key]}\n  theirs: {wanted[key]}"
        for one in cases
        for number, call in enumerate(one.requests)
        if got[key := (one.name, number)] != wanted[key]
    ]
    assert not differences, "\n\n".join(differences[:10])
    refused = sum(remark is not None for remark in got.values())
    assert 0.2 < refused / len(got) < 0.95, "both kinds of decisions are among them"
