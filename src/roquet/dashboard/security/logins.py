"""Logins: whether a cluster takes requests that a user has signed, and how often one may try."""

import secrets
from collections import Counter
from typing import Final

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.model.errors import CallError, CallRefused, RoquetError
from roquet.wire.calls.access import GetUser
from roquet.wire.codes import ResponseCode

REFUSED_BY_POLICY: Final = "has no permission"
"""Part of a refusal by policies, in the words of Apache's brokers: the signature was right."""


NOT_CHECKED: Final = "the cluster checks no signatures: start the dashboard without login"


class LoginFailed(RoquetError):
    """A user and password that the cluster does not know."""


class _SignedAsker:
    """Asks brokers with a user's signature."""

    def __init__(self, name_servers: str, client: ClientConfig) -> None:
        self._name_servers = name_servers
        self._client = client

    async def refusal(self, address: str, user: str) -> str | None:
        """The remark with which a broker refuses to show a user to itself; None: it shows it.

        Raises CallError when the broker does not answer.
        """
        async with AdminClient(self._name_servers, self._client) as admin:
            try:
                await admin.ask(address, GetUser(username=user))
            except CallRefused as error:
                if error.code != ResponseCode.NO_PERMISSION:
                    raise
                return error.remark or ""
        return None


async def check_password(
    admin: AdminClient, name_servers: str, user: str, wrong: ClientConfig, right: ClientConfig
) -> None:
    """Raise LoginFailed unless a broker takes the user's signature.

    `wrong` are settings with a password that nobody has: a broker that takes them checks no
    signatures, and lets nobody log in. `right` are those with the password to check. `admin` says
    which brokers there are; RoquetError when none answers.
    """
    failure: RoquetError = RoquetError("no broker answers")
    for address in (await admin.brokers()).values():
        try:
            refused = await _SignedAsker(name_servers, wrong).refusal(address, user)
            if refused is None:
                raise LoginFailed(NOT_CHECKED)
            remark = await _SignedAsker(name_servers, right).refusal(address, user)
        except CallRefused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise LoginFailed(NOT_CHECKED) from None
            failure = error
            continue
        except CallError as error:
            failure = error
            continue
        if remark is None or (remark != refused and REFUSED_BY_POLICY in remark):
            return
        raise LoginFailed("the cluster does not know this user with this password")
    raise failure


def wrong_password() -> str:
    """A password that no user has."""
    return secrets.token_urlsafe(32)


PERIOD_MS: Final = 60_000
"""Time in which failed logins are counted."""

EACH_MAX: Final = 5
"""Failed logins of one user from one address in a period."""

ADDRESS_MAX: Final = 20
"""Failed logins from one address in a period: one host alone must not keep everybody out."""

TOTAL_MAX: Final = 60
"""Failed logins of everybody in a period: each costs the cluster two requests."""


class LoginAttempts:
    """Failed logins of the present period, by user and address."""

    def __init__(self, address_max: int = ADDRESS_MAX) -> None:
        """Behind a proxy everybody has its address: then `address_max` is `TOTAL_MAX`."""
        self._address_max = address_max
        self._since_ms = 0
        self._failed: Counter[tuple[str, str]] = Counter()

    def wait_ms(self, user: str, address: str, now_ms: int) -> int:
        """Time until somebody may try again; 0 if now. `now_ms` is monotonic."""
        self._start_period(now_ms)
        from_address = sum(n for (_, other), n in self._failed.items() if other == address)
        is_free = (
            self._failed[user, address] < EACH_MAX
            and from_address < self._address_max
            and self._failed.total() < TOTAL_MAX
        )
        return 0 if is_free else self._since_ms + PERIOD_MS - now_ms

    def begin(self, user: str, address: str, now_ms: int) -> None:
        """Count a login as failed before it is tried: several at a time are all counted."""
        self._start_period(now_ms)
        self._failed[user, address] += 1

    def succeed(self, user: str, address: str) -> None:
        """Forget the failed logins of somebody who has logged in."""
        self._failed.pop((user, address), None)

    def _start_period(self, now_ms: int) -> None:
        if now_ms - self._since_ms >= PERIOD_MS:
            self._since_ms = now_ms
            self._failed.clear()
