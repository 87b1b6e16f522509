"""AccessControl: the users and policies of a running broker, and the checks of its requests.

    access.json ──▶ tables in force ──▶ guard of the router
         ▲                │ each change makes others, saved first
         └────────────────┘

Accounts of a `plain_acl.yml` of Apache RocketMQ 4 are in force beside them, and not saved, unless a
change of one takes it over: then the name in access.json hides that of the file.

Without `authenticationEnabled` there is none: the file is not read, and no request is checked.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from roquet.access.gaps import AccessGap
from roquet.access.guard import AccessRules
from roquet.access.requirement import on_group, on_topic
from roquet.access.secret_files import warn_of_readers
from roquet.broker.access.access_file import AccessFile, PlainAclFile
from roquet.broker.settings.config import BrokerConfig
from roquet.log_records import logger
from roquet.model.access import AccessTables, Action, User, UserStatus, UserType
from roquet.model.errors import ConfigError, StoreError
from roquet.net.threads import in_thread
from roquet.rules.access.decision import AccessRequest, decide
from roquet.rules.access.plain_acl import overlaid, without_overlay
from roquet.wire.codes import RequestCode

log = logger(__name__)

SEND_CODES: Final = frozenset(
    (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
)

RELOAD_MS: Final = 5_000
"""Ms between two looks at the file, for a change that an operator made in it."""


class AccessControl:
    """Users and policies of one broker."""

    def __init__(self, config: BrokerConfig, file: AccessFile | None) -> None:
        """Read the file, and add the users that the settings name. Raises ConfigError, StoreError.

        None as file keeps everything in memory.
        """
        self.is_enabled = config.authentication_enabled
        self._checks_policies = config.authorization_enabled
        self._gaps = config.access_compatibility
        self._all_may_send = not SEND_CODES.isdisjoint(config.authorization_whitelist)
        self.tables = AccessTables()
        """In force now; frozen, a change makes another."""
        self._file = file
        self._saved = AccessTables()
        """Tables without the accounts of version 4."""
        self._plain_file: PlainAclFile | None = None
        self._plain = AccessTables()
        self._changing = asyncio.Lock()
        self._fault = ""
        """Why the file was not taken over the last time."""
        if config.source is not None and (config.initial_user or config.inner_credentials):
            warn_of_readers(config.source)
        if self.is_enabled:
            self._open(config)

    def _open(self, config: BrokerConfig) -> None:
        saved = None
        if self._file is not None:
            saved = self._file.read()
            warn_of_readers(self._file.path)
        self._saved = _with_settings_users(saved or AccessTables(), config)
        if config.plain_acl_file is not None:
            self._plain_file = PlainAclFile(config.plain_acl_file)
            self._plain = self._plain_file.read()
        self.tables = overlaid(self._saved, self._plain)
        if not self.tables.users:
            raise ConfigError(
                "authenticationEnabled: there is no user yet, so nobody could do anything: name "
                'the first one in initAuthenticationUser={"username":"…","password":"…"}'
            )
        if self._file is not None and self._saved != (saved or AccessTables()):
            self._file.write(self._saved)

    def may_name_replicas(self, username: str) -> bool:
        """Whether a user may say where the log is sent; all may where no policies count."""
        user = self.tables.users.get(username)
        is_open = not self._checks_policies or AccessGap.REPLICA_LOG in self._gaps
        return is_open or (user is not None and user.is_super)

    def may_send(self, username: str, topic: str, ip: str) -> bool:
        """Whether a user may send to a topic now; everybody may where no policies count.

        Every user may where `authorization_whitelist` has sends. For messages that a broker shows
        to producers of its own accord. Apache's broker checks nobody then.
        """
        if not self._checks_policies or AccessGap.TRANSACTION_CHECKS in self._gaps:
            return True
        needed = () if self._all_may_send else on_topic(topic, (Action.PUB,))
        return self._may(username, needed, ip)

    def may_consume(self, username: str, group: str, ip: str) -> bool:
        """Whether a user may consume in a group now; everybody may where no policies count."""
        needed = on_group(group, (Action.SUB,))
        return not self._checks_policies or self._may(username, needed, ip)

    def _may(self, username: str, needed: Iterable[AccessRequest], ip: str) -> bool:
        user = self.tables.users.get(username)
        if user is None or user.status is not UserStatus.ENABLE:
            return False
        return all(decide(self.tables, username, one, ip).is_allowed for one in needed)

    async def change(self, make: Callable[[AccessTables], AccessTables]) -> None:
        """Change users or policies: saved first, then in force. Raises what `make` raises.

        Changes are serialized, and begin with what is in the file. Raises StoreError when that
        cannot be used, or does not take the change; nothing has changed then.
        """
        async with self._changing:
            await self._follow_file()
            tables = make(self.tables)
            saved = without_overlay(tables, self._saved, self._plain)
            file = self._file
            if file is None or saved == self._saved:
                self._saved, self.tables = saved, tables
                return

            def save() -> None:
                file.write(saved)
                # Here: the caller may be cancelled while the thread works.
                self._saved, self.tables = saved, tables

            await in_thread(save)

    async def reload(self, _now_ms: int) -> None:
        """Take over what an operator has changed in the file; content that is broken is ignored."""
        async with self._changing:
            try:
                await self._follow_file()
                await self._follow_plain_file()
            except (StoreError, ConfigError) as error:
                if str(error) != self._fault:
                    log.warning("users and policies stay as they were: %s", error)
                self._fault = str(error)
            else:
                self._fault = ""

    async def _follow_file(self) -> None:
        """Take over the file if somebody else has written it. Raises StoreError."""
        if (file := self._file) is None:
            return

        def follow() -> bool:
            if (changed := file.changed()) is None:
                return False
            self._saved = changed  # here, for the same reason as in `change`
            self.tables = overlaid(changed, self._plain)
            return True

        if await in_thread(follow):
            log.info("users and policies are read again from %s", file.path)

    async def _follow_plain_file(self) -> None:
        if (file := self._plain_file) is None:
            return
        if (changed := await in_thread(file.changed)) is not None:
            self._plain = changed
            self.tables = overlaid(self._saved, changed)


def access_rules(config: BrokerConfig) -> AccessRules:
    """Rules of access of a broker with these settings.

    Controllers do not sign. A broker believes nothing that a notice of a new role says, and only
    asks its controller, so that a notice may come from anybody.
    """
    unsigned = set(config.authentication_whitelist)
    if config.controller_mode:
        unsigned.add(int(RequestCode.NOTIFY_BROKER_ROLE_CHANGED))
    return AccessRules(
        cluster=config.cluster_name,
        checks_policies=config.authorization_enabled,
        unsigned_codes=frozenset(unsigned),
        open_codes=frozenset(config.authorization_whitelist),
        certificate_users=config.certificate_users,
        gaps=config.access_compatibility,
    )


def _with_settings_users(tables: AccessTables, config: BrokerConfig) -> AccessTables:
    """The tables with the super users of the settings, where their names are unknown yet."""
    users = dict(tables.users)
    for credentials in (config.initial_user, config.inner_credentials):
        if credentials is not None:
            name, password = credentials.access_key, credentials.secret_key
            users.setdefault(name, User(name=name, password=password, user_type=UserType.SUPER))
    return AccessTables(users=users, acls=tables.acls)
