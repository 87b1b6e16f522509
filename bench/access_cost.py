"""Cost of access control: broker CPU of a signed send over 64 connections, beside an unsigned one.

    python -m bench.access_cost --rounds 5 --seconds 4

Two brokers of a side run all the time and are measured in turn, so that both have the same machine:
one without access control, and one that checks signatures and the policy of a user who is no super
user. Apache RocketMQ comes afterwards in the same way. Linux only.
"""

import contextlib
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench.lib.arguments import parse, parser_for
from bench.lib.raw_client import Address, Brokers, Load, Result, in_turn, ours
from bench.lib.rows import Row, calibration_of, save, show
from harness import genuine
from roquet.net.blocking import BlockingChannel
from roquet.net.channel import Security
from roquet.wire.calls.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from roquet.wire.fastjson import codec
from roquet.wire.signing import Credentials, Signer

COST_MAX: Final = 1.12
ROOT: Final = Credentials(access_key="root", secret_key="secret of root")
USER: Final = Credentials(access_key="bench", secret_key="secret of bench")
AUTH: Final = "org.apache.rocketmq.auth"
ACCESS_CONTROL: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "inner", "secretKey": "secret of inner"}
    ),
}
PROVIDERS: Final = {
    f"{part}{kind}Provider": f"{AUTH}.{part}.provider.{prefix}{name}{kind}Provider"
    for part, name in (("authentication", "Authentication"), ("authorization", "Authorization"))
    for kind, prefix in (("", "Default"), ("Metadata", "Local"))
}
"""Settings that Apache's broker needs besides."""


def permit(address: Address) -> None:
    """Make a user who may do everything with topics."""
    user = UserInfo(username=USER.access_key, password=USER.secret_key, user_type="Normal")
    entry = PolicyEntryInfo(resource="Topic:*", actions=["All"], decision="Allow")
    subject = f"User:{USER.access_key}"
    acl = AclInfo(subject=subject, policies=[PolicyInfo(entries=[entry])])
    with BlockingChannel(
        "{}:{}".format(*address), security=Security(signer=Signer(ROOT))
    ) as channel:
        channel.call(CreateUser(username=USER.access_key, body=codec.dumps(user)))
        channel.call(CreateAcl(subject=subject, body=codec.dumps(acl)))


@contextlib.contextmanager
def our_broker(folder: Path, settings: dict[str, str]) -> Iterator[Brokers]:
    """One of ours with these settings."""
    with ours(
        folder, settings="".join(f"{key}={value}\n" for key, value in settings.items())
    ) as it:
        yield it


@contextlib.contextmanager
def genuine_broker(folder: Path, settings: dict[str, str]) -> Iterator[Brokers]:
    """One of Apache RocketMQ with these settings."""
    providers = PROVIDERS if settings else {}
    with genuine.cluster(folder, **settings, **providers) as running:
        host, _, port = running.broker.rpartition(":")
        yield Brokers("genuine", [(host, int(port))], [running.pid])


Start = Callable[[Path, dict[str, str]], contextlib.AbstractContextManager[Brokers]]


def run(start: Start, folder: Path, rounds: int, seconds: float) -> tuple[list[Result], ...]:
    """Results of each round of one side: with access control, and without."""
    with start(folder / "guarded", ACCESS_CONTROL) as guarded, start(folder / "open", {}) as plain:
        permit(guarded.addresses[0])
        signed = replace(Load(), signer=Signer(USER))
        return tuple(in_turn([(guarded, signed), (plain, Load())], rounds, seconds))


def cost(results: tuple[list[Result], ...]) -> tuple[float, float]:
    """Medians over the rounds: times the CPU of an unsigned send, and us more than it."""
    pairs = [(one.broker_us, other.broker_us) for one, other in zip(*results, strict=True)]
    times = statistics.median(one / other for one, other in pairs)
    return times, statistics.median(one - other for one, other in pairs)


def rows(found: dict[str, tuple[list[Result], ...]]) -> list[Row]:
    """The table: what access control costs on each side."""
    mine, theirs = cost(found["ours"]), found.get("genuine")
    peer: tuple[Any, Any] = cost(theirs) if theirs else (None, None)
    name = "64 connections x 128 B"
    times = Row(f"{name}: CPU with access control", "times", mine[0], peer[0], f"<= {COST_MAX}")
    table = [times, Row(f"{name}: CPU of access control", "us", mine[1], peer[1])]
    measured = {side: [one for results in both for one in results] for side, both in found.items()}
    return [replace(row, calibration=calibration_of(measured)) for row in table]


def main() -> None:
    """Measure, print, write the JSON."""
    given = parse(parser_for(__doc__, "access-cost", ["send"], seconds=4))
    starts: dict[str, Start] = {"ours": our_broker}
    if lack := genuine.missing():
        print(lack)
    elif not given.ours_only:
        starts["genuine"] = genuine_broker
    found = {}
    with tempfile.TemporaryDirectory(prefix="roquet-access-") as folder:
        for name, start in starts.items():
            print(name)
            found[name] = run(start, Path(folder) / name, given.rounds, given.seconds)
    table = rows(found)
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
