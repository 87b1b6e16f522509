"""Access: users and their ACLs, managed by the users who may change or see the cluster.

Stricter than Apache's broker: ACLs are changed by super users alone, and passwords are shown to
them alone; with either a normal user who may change or see the cluster could make himself super.
The gaps `policies` and `passwords` bring these back. Every success has the remark of Apache's
broker.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from roquet.access.gaps import AccessGap
from roquet.access.translation import acl_info, policy_changes, user_change, user_info
from roquet.broker.access.access_control import AccessControl
from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.refusals import invalid_parameter, no_permission, system_error
from roquet.log_records import logger
from roquet.model.access import AccessTables, User
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.observe.log_lines import AUDIT
from roquet.rules.access import changes
from roquet.rules.access.changes import AccessChangeRefused, UserChange
from roquet.wire.call import Reply
from roquet.wire.calls.access import (
    SUCCESS_REMARK,
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
    UserInfo,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

log = logger(__name__)

OFF: Final = (
    " request type {} not supported: this broker checks no users; authenticationEnabled=true and "
    "initAuthenticationUser switch that on"
)

BLANK: Final = "The username is blank"

Change = Callable[[AccessTables], AccessTables]

UserPut = Callable[[AccessTables, User | None, str, UserChange], AccessTables]

AclChange = CreateAcl | UpdateAcl | DeleteAcl


class AccessHandler(BrokerComponent, frozen=True):
    """Manages users and their ACLs."""

    control: ControlPlane
    access: AccessControl

    async def create_user(self, call: CreateUser, peer: Peer) -> Reply:
        """Create a user."""
        return await self._put_user(call, changes.create_user, "created", peer)

    async def update_user(self, call: UpdateUser, peer: Peer) -> Reply:
        """Change a user's password, type or status."""
        return await self._put_user(call, changes.update_user, "changed", peer)

    async def delete_user(self, call: DeleteUser, peer: Peer) -> Reply:
        """Delete a user and its ACL."""
        caller, name = self._caller(call), _named(call.username)
        change: Change = lambda tables: changes.delete_user(tables, caller, name)  # noqa: E731
        return await self._change(change, f"user {name} deleted", caller, peer)

    def get_user(self, call: GetUser, _peer: Peer) -> Reply:
        """Return one user."""
        caller, name = self._caller(call), _named(call.username)
        user = self.access.tables.users.get(name)
        if user is None:
            return Reply(remark=SUCCESS_REMARK)
        shown = user_info(user, with_password=self._sees_passwords(caller))
        return Reply(remark=SUCCESS_REMARK, body=codec.dumps(shown))

    def list_users(self, call: ListUsers, _peer: Peer) -> Reply:
        """Return the users whose names contain a text, in the order of their names."""
        sees = self._sees_passwords(self._caller(call))
        shown = [
            user_info(user, with_password=sees)
            for name, user in sorted(self.access.tables.users.items())
            if (call.filter or "") in name
        ]
        return Reply(remark=SUCCESS_REMARK, body=codec.dumps(shown) if shown else b"")

    async def change_acl(self, call: CreateAcl | UpdateAcl, peer: Peer) -> Reply:
        """Create an ACL, or add entries to it."""
        caller = self._acl_changer(call)
        body = decode_body(call.body, AclInfo) if call.body else AclInfo()
        if not body.policies:
            raise system_error("The body of acl is null")
        with _refusing():  # the body's subject wins over the header's
            name, wanted = changes.subject_name(body.subject or call.subject), policy_changes(body)
        change: Change = lambda tables: changes.change_acl(tables, name, wanted)  # noqa: E731
        return await self._change(change, f"acl of {name} changed", caller, peer)

    async def delete_acl(self, call: DeleteAcl, peer: Peer) -> Reply:
        """Delete an ACL, or one entry of it."""
        caller = self._acl_changer(call)
        with _refusing():
            name = changes.subject_name(call.subject)
        resource, policy = call.resource, call.policy_type
        change: Change = lambda tables: changes.delete_acl(tables, name, resource, policy)  # noqa: E731
        text = f"acl of {name} deleted" + (f" for {resource}" if resource else "")
        return await self._change(change, text, caller, peer)

    def get_acl(self, call: GetAcl, _peer: Peer) -> Reply:
        """Return the ACL of a user."""
        self._check_on(call.code)
        with _refusing():
            name = changes.subject_name(call.subject)
            acl = changes.known_acl(self.access.tables, name)
        body = b"" if acl is None else codec.dumps(acl_info(name, acl))
        return Reply(remark=SUCCESS_REMARK, body=body)

    def list_acls(self, call: ListAcls, _peer: Peer) -> Reply:
        """Return the ACLs whose subjects contain a text, with the entries whose resources do."""
        self._check_on(call.code)
        infos = [
            acl_info(name, acl, call.resource_filter or "")
            for name, acl in sorted(self.access.tables.acls.items())
            if (call.subject_filter or "") in changes.SUBJECT_PREFIX + name
        ]
        shown = [info for info in infos if info.policies]
        return Reply(remark=SUCCESS_REMARK, body=codec.dumps(shown) if shown else b"")

    async def _put_user(
        self, call: CreateUser | UpdateUser, put: UserPut, done: str, peer: Peer
    ) -> Reply:
        caller, name = self._caller(call), _named(call.username)
        if not call.body:
            raise system_error("The body of user is null")
        wanted = user_change(decode_body(call.body, UserInfo))
        change: Change = lambda tables: put(tables, caller, name, wanted)  # noqa: E731
        return await self._change(change, f"user {name} {done}", caller, peer)

    async def _change(self, change: Change, done: str, caller: User | None, peer: Peer) -> Reply:
        with _refusing():
            await self.access.change(change)
        who = caller.name if caller else "nobody"
        log.info("%s by %s from %s", done, who, peer.address, extra=AUDIT)
        return Reply(remark=SUCCESS_REMARK)

    def _caller(
        self, call: CreateUser | UpdateUser | DeleteUser | GetUser | ListUsers | AclChange
    ) -> User | None:
        self._check_on(call.code)
        return self.access.tables.users.get(call.access_key or "")

    def _acl_changer(self, call: AclChange) -> User | None:
        """The user who changes an ACL. CallRefused for a normal one."""
        caller = self._caller(call)
        if not (self._is_open(AccessGap.POLICIES) or (caller is not None and caller.is_super)):
            raise no_permission(changes.ACL_NOT_BY_NORMAL_USERS)
        return caller

    def _sees_passwords(self, caller: User | None) -> bool:
        return self._is_open(AccessGap.PASSWORDS) or (caller is not None and caller.is_super)

    def _is_open(self, gap: AccessGap) -> bool:
        return gap in self.control.settings.config.access_compatibility

    def _check_on(self, code: int) -> None:
        if not self.access.is_enabled:
            raise CallRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, OFF.format(int(code)))


def _named(username: str | None) -> str:
    if not username:
        raise invalid_parameter(BLANK)
    return username


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a request for a change that may not be made."""
    try:
        yield
    except AccessChangeRefused as error:
        refusal = system_error if error.is_system_error else no_permission
        raise refusal(str(error)) from error
