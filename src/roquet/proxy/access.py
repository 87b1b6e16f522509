"""ProxyAccess: checks who sent a request to the proxy, and whether he may do what it asks.

metadata ──▶ user, signature of the date ──▶ what the method needs ──▶ policies
│                                                      │
└── UNAUTHORIZED                                       └── FORBIDDEN
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from roquet.access.guard import ALLOWED_MAX, NAME_LENGTH_MAX, NEEDS_MAX
from roquet.model.access import AccessTables, User, UserStatus
from roquet.net.address import host_of
from roquet.proxy.requirements import NEEDS
from roquet.rules.access.decision import AccessRequest, decide, refusal_text
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.proxy_signing import AUTHORIZATION, DATE_TIME, parse_authorization

UNSIGNED: Final = "the request is not signed: give the client an access key and a secret key"
WITHOUT_DATE: Final = f"the request is not signed: the header {DATE_TIME} is missing"
BAD_SIGNATURE: Final = "the signature of user {!r:.100} is wrong: see the secret key"


class ProxyAccess:
    """Checks requests by the users and policies that `tables` gives."""

    def __init__(self, tables: Callable[[], AccessTables], *, checks_policies: bool = True) -> None:
        """`tables` gives those in force now, a new value after each change; it may refuse."""
        self._tables_now = tables
        self._checks_policies = checks_policies
        self._tables = AccessTables()
        self._allowed: set[tuple[str, str, AccessRequest]] = set()
        """User, IP address and need of requests that the tables allow."""

    def authenticate(self, metadata: Mapping[str, str]) -> User:
        """The user who signed a request. Raises ProxyRefusal with UNAUTHORIZED."""
        if (tables := self._tables_now()) is not self._tables:
            self._tables = tables
            self._allowed.clear()
        signature = parse_authorization(metadata.get(AUTHORIZATION, ""))
        if not signature.access_key:  # clients without credentials send an empty one
            raise ProxyRefusal(StatusCode.UNAUTHORIZED, UNSIGNED)
        if not (date_time := metadata.get(DATE_TIME)):
            raise ProxyRefusal(StatusCode.UNAUTHORIZED, WITHOUT_DATE)
        user = tables.users.get(signature.access_key)
        if user is None or not signature.is_by(user.password, date_time):
            # The same for both: names of users are not for strangers.
            text = BAD_SIGNATURE.format(signature.access_key)
            raise ProxyRefusal(StatusCode.UNAUTHORIZED, text)
        if user.status is not UserStatus.ENABLE:
            text = f"user {user.name!r:.100} is disabled"
            raise ProxyRefusal(StatusCode.UNAUTHORIZED, text)
        return user

    def authorize(self, user: User, method: str, request: Any, address: str) -> None:
        """Check all that a request needs. Raises ProxyRefusal with FORBIDDEN for the first."""
        if user.is_super or not self._checks_policies:
            return
        ip = host_of(address)
        for number, need in enumerate(NEEDS[method](request)):
            if number >= NEEDS_MAX:
                text = f"more than {NEEDS_MAX} topics and groups in one request"
                raise ProxyRefusal(StatusCode.FORBIDDEN, text)
            self._decide(user.name, need, ip)

    def _decide(self, name: str, need: AccessRequest, ip: str) -> None:
        key = name, ip, need
        if key in self._allowed:
            return
        verdict = decide(self._tables, name, need, ip)
        if not verdict.is_allowed:
            raise ProxyRefusal(StatusCode.FORBIDDEN, refusal_text(name, need, ip, verdict))
        if len(need.resource.name) <= NAME_LENGTH_MAX:
            if len(self._allowed) >= ALLOWED_MAX:
                self._allowed.clear()
            self._allowed.add(key)
