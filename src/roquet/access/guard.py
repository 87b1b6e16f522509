"""AccessGuard: checks who sent a request, and whether he may do what it asks.

    command ──▶ user, signature ──▶ what the code needs ──▶ policies ──▶ command of checked fields
                     │                     │                   │
                     │                     └── allowed before ─┼─────▶ command as it came
                     └──────────── refused: code 16 ───────────┘

Each request stands alone: nothing is remembered of a connection, and a request that was recorded
passes again (TLS is the remedy). The signature of each one is checked; what a policy has allowed is
remembered until users or policies change. Refusals are in the words of Apache's brokers.
"""

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Final

import msgspec

from roquet.access.gaps import AccessGap
from roquet.access.required_access import REQUIRED, UNCHECKED_BY_APACHE
from roquet.access.requirement import RequestFacts, Requirement
from roquet.log_records import logger
from roquet.model.access import AccessTables, User, UserStatus, UserType
from roquet.model.errors import CallRefused
from roquet.net.address import host_of
from roquet.net.connection.peer_connection import PeerConnection
from roquet.net.log_fields import request_fields
from roquet.net.router import Peer, PlainRequest
from roquet.rules.access.decision import AccessRequest, decide, refusal_text
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command
from roquet.wire.plain_pull import PULL_CODE
from roquet.wire.plain_send import SEND_CODES
from roquet.wire.signing import ACCESS_KEY, SigningKey, signed_by, text_fields

log = logger(__name__)

NO_USER: Final = "username cannot be null."
BAD_SIGNATURE: Final = "check signature failed."

ALLOWED_MAX: Final = 16_384
"""Allowed requests that are remembered, some 400 bytes each: a client makes the same ones again and
again."""

NAME_LENGTH_MAX: Final = 255
"""Characters of a name in a request that is remembered: no topic or group has a longer one."""

PLAIN_CODES: Final = (*SEND_CODES, PULL_CODE)
"""Codes of plain requests: see `Router.add_plain`."""

_ATTRIBUTES: Final = {"b": "topic", "topic": "topic", "consumerGroup": "consumer_group"}
"""Attributes of plain requests by the fields that decide on them."""

LOGGED_MAX: Final = 256
"""Different refusals that are logged within `LOG_PAUSE_MS`: strangers must not fill the disk."""

LINE_LENGTH_MAX: Final = 512
"""Characters of a logged refusal: a remark repeats what a stranger has sent."""

NEEDS_MAX: Final = 16_384
"""Resources that one request may name: more than any handler takes."""

LOG_PAUSE_MS: Final = 60_000
"""Time within which the same refusal is logged once."""


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of access of one server."""

    cluster: str
    """The cluster that the server belongs to."""
    checks_policies: bool = False
    """Whether a known user needs a policy, too."""
    unsigned_codes: frozenset[int] = frozenset()
    """Codes that need no user at all."""
    open_codes: frozenset[int] = frozenset()
    """Codes that need no policy."""
    certificate_users: bool = False
    """Whether a request that is not signed comes from the user whom the certificate names that the
    client has shown."""
    gaps: Collection[AccessGap] = ()
    """Checks that are left out, as Apache's brokers do."""


AllowedRequest = tuple[str, str, int, tuple[str | None, ...]]
"""User, IP address, code, and the values of the fields on which a decision depends."""


class AccessGuard:
    """Checks the requests to one server."""

    def __init__(
        self,
        tables: Callable[[], AccessTables],
        rules: AccessRules,
        now_ms: Callable[[], int],
        topic_at: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """Prepare a guard; `topic_at` is that of `RequestFacts`."""
        self._tables_now = tables
        self._rules = rules
        self._now_ms = now_ms
        self._topic_at: Callable[[int], str | None] = topic_at
        if AccessGap.MESSAGES in rules.gaps:
            self._topic_at = lambda _: None
        open_codes = rules.open_codes | rules.unsigned_codes
        if AccessGap.CODES in rules.gaps:
            open_codes |= UNCHECKED_BY_APACHE
        self._required: dict[int, Requirement] = {
            int(code): requirement
            for code, requirement in REQUIRED.items()
            if code not in open_codes
        }
        self._deciding: dict[int, tuple[str, ...] | None] = {
            **{code: one.fields or () for code, one in self._required.items()},
            **dict.fromkeys(rules.unsigned_codes),
        }
        """Fields that decide on requests of a code; None for a code that needs no user."""
        self._plain_deciding = {code: self._plain_values(code) for code in PLAIN_CODES}
        """Values of plain requests that decide on them."""
        self._tables = AccessTables()
        self._keys: dict[str, SigningKey] = {}
        """Keys of enabled users that were needed since users or policies changed."""
        self._allowed: set[AllowedRequest] = set()
        """Everything that a decision depends on, unless the body or the log is among it."""
        self._latest: dict[str, tuple[SigningKey, int, object]] = {}
        """Key, code and values of the latest plain request from an address, which was allowed."""
        self.user = ""
        """The user of the request that was admitted last; empty if it needed none."""
        self._logged: set[str] = set()
        self._logged_since_ms = 0

    def admit(self, command: Command, peer: Peer) -> Command:
        """The request with the fields that were checked, so that a handler sees no others.

        Its access key is the name of the user who was admitted; a request that needs none has none.
        Raises CallRefused, and FieldError for a header or body that cannot be read.
        """
        if self._tables_now() is not self._tables:
            self._forget()
        wanted = self._deciding.get(command.code, ())
        if wanted is None:
            return self._without_user(command)
        signed = signed_by(command.fields, command.body, self._keys, wanted)
        if signed is None:
            return self._admit(command, peer)
        name, values = signed
        if self._is_remembered(name, values, command.code, peer):
            return command
        return self._admit(command, peer, name)

    def _plain_values(self, code: int) -> Callable[[PlainRequest], object] | None:
        """How to get the values that decide on plain requests: one, or several as a tuple."""
        deciding = self._deciding.get(code, ())
        if not deciding:
            return None if deciding is None else lambda _: ()
        return attrgetter(*[_ATTRIBUTES[name] for name in deciding])

    @property
    def plain_keys(self) -> dict[str, SigningKey] | None:
        """Keys of the users who may make plain requests, filled as they are needed.

        None where none of them needs a user.
        """
        needs_none = all(deciding is None for deciding in self._plain_deciding.values())
        return None if needs_none else self._keys

    def admits(self, request: PlainRequest, peer: Peer) -> bool:
        """Whether a plain request needs no user, or a user signed it who was allowed it before.

        It was read with `plain_keys`. What is not, `admit` decides.
        """
        self.user = ""
        deciding = self._plain_deciding[request.code]
        if deciding is None:
            return True
        if self._tables_now() is not self._tables:
            return False
        key, code, values = request.key, request.code, deciding(request)
        address = peer.address
        if self._latest.get(address) != (key, code, values):
            if key is None or self._keys.get(key.user) is not key:  # it is one of earlier tables
                return False
            all_values = values if isinstance(values, tuple) else (values,)
            if not self._is_remembered(key.user, all_values, code, peer):
                return False
            if len(self._latest) >= ALLOWED_MAX:
                self._latest.clear()
            self._latest[address] = key, code, values
        assert key is not None, "nothing is remembered of a request without one"
        self.user = key.user
        return True

    def _is_remembered(
        self, name: str, values: tuple[str | None, ...], code: int, peer: Peer
    ) -> bool:
        """Whether a user who signed a request was allowed the same before: he is its user then."""
        if (name, host_of(peer.address), code, values) not in self._allowed:
            return False
        self.user = name
        return True

    def _without_user(self, command: Command) -> Command:
        """A request that needs no user, without the name that it may claim."""
        self.user = ""
        fields = _fields_of(command)
        fields.pop(ACCESS_KEY, None)
        return msgspec.structs.replace(command, fields=fields)

    def _admit(self, command: Command, peer: Peer, name: str | None = None) -> Command:
        """Admit a request by all its fields.

        `name` is the user whose signature was checked, on fields that go on as they came.
        """
        self.user = ""
        fields = _fields_of(command)
        try:
            user = self._known(name) if name else self._authenticate(command, fields, peer)
            self._authorize(command, fields, user, host_of(peer.address))
        except CallRefused as refusal:
            raise self._logged_refusal(refusal, command, peer) from None
        self.user = user.name
        if name:
            return command
        fields[ACCESS_KEY] = user.name  # a certificate's name is not among the fields
        return msgspec.structs.replace(command, fields=fields)

    @property
    def tables(self) -> AccessTables:
        """Users and policies in force now; a change makes another value."""
        return self._tables_now()

    def admit_again(self, admitted: Command, peer: Peer) -> None:
        """Check an admitted request by the tables in force now. Raises CallRefused."""
        if self._tables_now() is not self._tables:
            self._forget()
        fields = admitted.ext
        if (name := fields.get(ACCESS_KEY)) is None:
            return
        try:
            self._authorize(admitted, fields, self._known(name), host_of(peer.address))
        except CallRefused as refusal:
            raise self._logged_refusal(refusal, admitted, peer) from None

    def _authenticate(self, command: Command, fields: Mapping[str, str], peer: Peer) -> User:
        """The user who signed a request, or whom his certificate names. Raises CallRefused."""
        name = fields.get(ACCESS_KEY)
        is_signed = bool(name)
        if not is_signed and self._rules.certificate_users and isinstance(peer, PeerConnection):
            name = peer.certificate_user
        if not name:
            raise _refused(NO_USER)
        user = self._known(name)
        if is_signed and not self._key(user).has_signed(fields, command.body, command.version):
            raise _refused(BAD_SIGNATURE)
        return user

    def _known(self, name: str) -> User:
        """An enabled user. Raises CallRefused for any other name."""
        user = self._tables.users.get(name)
        if user is None:
            raise _refused(f"User:{name} is not found.")
        if user.status is not UserStatus.ENABLE:
            raise _refused(f"User:{name} is disabled.")
        return user

    def _authorize(self, command: Command, fields: Mapping[str, str], user: User, ip: str) -> None:
        """Check what a request needs, and remember that it is allowed. Raises CallRefused."""
        code = command.code
        key: AllowedRequest = (
            user.name, ip, code, tuple(map(fields.get, self._deciding.get(code) or ())),
        )  # fmt: skip
        if key in self._allowed:
            return
        required = self._required.get(code)
        if required and self._rules.checks_policies and user.user_type is not UserType.SUPER:
            facts = RequestFacts(fields, command.body, self._rules.cluster, self._topic_at)
            for number, request in enumerate(required.needs(facts)):
                if number >= NEEDS_MAX:
                    raise _refused(f"more than {NEEDS_MAX} resources in one request")
                self._decide(request, user.name, ip)
            if required.fields is None:  # the body or the log decides as well
                return
        if _is_short(key):
            if len(self._allowed) >= ALLOWED_MAX:
                self._allowed.clear()
            self._allowed.add(key)

    def _decide(self, request: AccessRequest, name: str, ip: str) -> None:
        verdict = decide(self._tables, name, request, ip)
        if not verdict.is_allowed:
            raise _refused(refusal_text(name, request, ip, verdict))

    def _key(self, user: User) -> SigningKey:
        key = self._keys.get(user.name)
        if key is None:
            key = self._keys[user.name] = SigningKey(user.password, user.name)
        return key

    def _forget(self) -> None:
        self._tables = self._tables_now()
        self._keys.clear()
        self._allowed.clear()
        self._latest.clear()

    def _logged_refusal(self, refusal: CallRefused, command: Command, peer: Peer) -> CallRefused:
        """A refusal that is in the log now, unless the same one was logged just before."""
        now_ms = self._now_ms()
        if now_ms - self._logged_since_ms >= LOG_PAUSE_MS:
            self._logged_since_ms = now_ms
            self._logged.clear()
        ip = host_of(peer.address)
        line = f"refused code {command.code} from {ip}: {refusal.remark}"[:LINE_LENGTH_MAX]
        if line not in self._logged and len(self._logged) < LOGGED_MAX:
            self._logged.add(line)
            fields = request_fields(command, peer.address)
            log.warning("%s", line, extra=fields)
        return refusal


def _fields_of(command: Command) -> dict[str, str]:
    """The header's fields as texts; of a name that is given twice the last value."""
    fields = text_fields(command.fields)
    return dict(command.ext) if fields is None else fields


def _is_short(request: AllowedRequest) -> bool:
    return all(len(value or "") <= NAME_LENGTH_MAX for value in request[3])


def _refused(remark: str) -> CallRefused:
    return CallRefused(ResponseCode.NO_PERMISSION, remark)
