"""Quotas: messages and bytes a second of users, topics and client addresses, as token buckets.

    topic:* send 5000/s; user:batch send 200/s 1MiB/s; client:* fetch 10MiB/s

A bucket holds the tokens of one second. A request is admitted while there is at least one, and may
take more than there are, so that a message of any size passes: the next request then waits until
the debt is paid.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import parse_bytes, parse_int
from roquet.rules.bounded_cache import BoundedCache

ANY_NAME: Final = "*"
"""Name of a quota for each one that has none of its own."""

BUCKETS_MAX: Final = 10_000
"""Names of one kind whose tokens are remembered, about 500 bytes each: those used last."""

RATE_MAX: Final = 1 << 40
"""Highest rate a second, of messages or bytes."""


class QuotaKind(StrEnum):
    """Scope of a quota: it counts the requests of one user, topic or client."""

    USER = "user"
    """The user who signed them, with access control."""
    TOPIC = "topic"
    CLIENT = "client"
    """The IP address that they come from."""


class QuotaDirection(StrEnum):
    """Whether messages are sent or fetched."""

    SEND = "send"
    FETCH = "fetch"


class QuotaUnit(StrEnum):
    """Unit in which a quota counts."""

    MESSAGES = "messages"
    BYTES = "bytes"


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """One limit: so many messages or bytes a second, for each name or for one."""

    kind: QuotaKind
    name: str
    """`*` stands for each name without a quota of its own of the same direction and unit."""
    direction: QuotaDirection
    unit: QuotaUnit
    rate: int
    """Messages or bytes a second."""

    def __str__(self) -> str:
        unit = "" if self.unit is QuotaUnit.MESSAGES else "B"
        return f"{self.kind}:{self.name} {self.direction} {self.rate}{unit}/s"


class QuotaExcess(msgspec.Struct, frozen=True):
    """A quota that holds up a request."""

    quota: Quota
    name: str
    """The user, topic or address."""
    wait_ms: int
    """Time until a request is admitted, if no other one is meanwhile."""

    def __str__(self) -> str:
        quota = self.quota
        return (
            f"quota: {quota.kind} {self.name} may {quota.direction} {quota.rate} {quota.unit} "
            f"a second, try again in {self.wait_ms} ms"
        )


class QuotaSubject(msgspec.Struct, frozen=True):
    """Names to which a request counts; an empty one counts to no quota."""

    user: str
    topic: str
    client: str
    """IP address."""

    def names(self) -> Iterable[tuple[QuotaKind, str]]:
        """Kinds with their names."""
        return (
            (QuotaKind.USER, self.user),
            (QuotaKind.TOPIC, self.topic),
            (QuotaKind.CLIENT, self.client),
        )


def parse_quotas(text: str, where: str) -> tuple[Quota, ...]:
    """Parse `KIND:NAME send|fetch RATE [RATE]; …`; a RATE is 500/s messages or 1MiB/s bytes.

    Raises ConfigError, also for two quotas of which one would have no effect.
    """
    quotas: dict[tuple[str, ...], Quota] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        subject, *words = part.split()
        kind, _, name = subject.partition(":")
        if kind not in frozenset(QuotaKind) or not name or len(words) < 2:
            raise _illegal(part, where)
        direction, *rates = words
        if direction not in frozenset(QuotaDirection):
            raise _illegal(part, where)
        for word in rates:
            unit, rate = _rate(word, part, where)
            quota = Quota(
                kind=QuotaKind(kind), name=name, direction=QuotaDirection(direction),
                unit=unit, rate=rate,
            )  # fmt: skip
            if quotas.setdefault((kind, name, direction, unit), quota) is not quota:
                raise ConfigError(f"{where}: two quotas of {unit} for {subject} {direction}")
    return tuple(quotas.values())


def write_quotas(quotas: Iterable[Quota]) -> str:
    """Write quotas as `parse_quotas` reads them."""
    return "; ".join(map(str, quotas))


class TokenBucket:
    """Tokens of one name under one quota. Times are ms of one clock, which may not go back."""

    __slots__ = ("_at_ms", "_level", "quota")

    def __init__(self, quota: Quota, now_ms: int) -> None:
        self.quota = quota
        self._level = float(quota.rate)
        """Below 1 the next request waits."""
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Ms until a request is admitted; 0 admits it now."""
        rate = self.quota.rate
        self._level = min(rate, self._level + (now_ms - self._at_ms) * rate / 1_000)
        self._at_ms = now_ms
        return 0 if self._level >= 1 else math.ceil((1 - self._level) * 1_000 / rate)

    def take(self, tokens: int) -> None:
        """Take tokens, also more than there are."""
        self._level -= tokens


class QuotaBuckets:
    """Buckets of all names in one direction."""

    def __init__(self, quotas: Iterable[Quota], direction: QuotaDirection) -> None:
        self._quotas: dict[QuotaKind, dict[str, dict[QuotaUnit, Quota]]] = {}
        for quota in quotas:
            if quota.direction is direction:
                names = self._quotas.setdefault(quota.kind, {})
                names.setdefault(quota.name, {})[quota.unit] = quota
        self._buckets: Mapping[QuotaKind, BoundedCache[str, Sequence[TokenBucket]]] = {
            kind: BoundedCache(BUCKETS_MAX) for kind in self._quotas
        }

    @property
    def is_empty(self) -> bool:
        """Whether there is no quota in this direction."""
        return not self._quotas

    def excess(self, subject: QuotaSubject, now_ms: int) -> QuotaExcess | None:
        """The quota with the longest wait for a request; None admits it."""
        longest: QuotaExcess | None = None
        for name, bucket in self._of(subject, now_ms):
            wait_ms = bucket.wait_ms(now_ms)
            if wait_ms > (0 if longest is None else longest.wait_ms):
                longest = QuotaExcess(bucket.quota, name, wait_ms)
        return longest

    def charge(self, subject: QuotaSubject, count: int, size: int, now_ms: int) -> None:
        """Count the messages and bytes of an admitted request."""
        for _, bucket in self._of(subject, now_ms):
            bucket.take(count if bucket.quota.unit is QuotaUnit.MESSAGES else size)

    def _of(self, subject: QuotaSubject, now_ms: int) -> Iterable[tuple[str, TokenBucket]]:
        for kind, name in subject.names():
            cache = self._buckets.get(kind)
            if cache is None or not name:
                continue
            if (buckets := cache.get(name)) is None:
                names = self._quotas[kind]
                quotas = names.get(ANY_NAME, {}) | names.get(name, {})
                buckets = [TokenBucket(quota, now_ms) for quota in quotas.values()]
                cache.put(name, buckets)
            for bucket in buckets:
                yield name, bucket


def _rate(word: str, part: str, where: str) -> tuple[QuotaUnit, int]:
    amount, slash, second = word.partition("/")
    if not slash or second != "s":
        raise _illegal(part, where)
    if amount.isascii() and amount.isdecimal():
        unit, rate = QuotaUnit.MESSAGES, parse_int(amount, where, least=1)
    else:
        unit, rate = QuotaUnit.BYTES, parse_bytes(amount, where)
    if not 1 <= rate <= RATE_MAX:
        raise ConfigError(f"{where}: {word} is out of bounds: 1/s to {RATE_MAX}/s")
    return unit, rate


def _illegal(part: str, where: str) -> ConfigError:
    return ConfigError(
        f"{where}: {part!r} is no quota: write user:NAME, topic:NAME or client:ADDRESS (or * as "
        "the name), send or fetch, and a rate as 500/s or 1MiB/s, with semicolons between quotas"
    )
