"""roquet acl user, policy: list, create, update and delete, on all brokers or on some."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_urlsafe
from typing import Annotated, Any, Final

import msgspec
import typer

from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.cli.command_options import CommandOptions, argument, option
from roquet.cli.operator_command import CommandGroup, Result, show_text
from roquet.cli.terminal import arguments, output
from roquet.cli.terminal.arguments import BROKERS
from roquet.cli.terminal.output import table
from roquet.cli.terminal.secret_input import secret_line
from roquet.model.access import AccessDecision, Action, PolicyType, UserStatus, UserType
from roquet.model.errors import CallError, RoquetError, UsageError
from roquet.wire.call import Call, Reply
from roquet.wire.calls.access import AclInfo, PolicyEntryInfo, UserInfo

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
ONE_BROKER: Final = option("Ask this one.", autocompletion=arguments.complete_brokers)


class DeletionOptions(CommandOptions):
    """Options of a deletion."""

    broker: list[str] | None = BROKERS
    yes: bool = option("Do not ask.", "-y")


class AccessChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and how the command speaks of it."""

    call: Call[Reply]
    done: str
    """A line that says what was done, without the brokers."""
    secret: str | None = None
    """A new password to be printed."""
    question: str | None = None
    """Asked before the change."""

    def __repr__(self) -> str:
        return f"AccessChange({self.done!r})"


async def make_change(
    admin: AdminClient,
    change: AccessChange,
    brokers: list[str] | None,
    *,
    yes: bool = True,
    as_json: bool = False,
) -> Result:
    """Make a change on all brokers or those named, after a question if there is one."""
    addresses = await access.every_broker(admin, brokers or [])
    if change.question is not None:
        await output.confirm(change.question, yes=yes, to_stderr=as_json)
    password = {} if change.secret is None else {"password": change.secret}
    lines = [f"password: {secret}" for secret in password.values()]
    try:
        names = await access.change(admin, addresses, change.call)
    except RoquetError as error:
        if not isinstance(error, CallError):  # some brokers took it
            show_text(lines)
        raise
    return Result(
        json=[{"brokers": names, "changed": True, **password}],
        text=[f"{change.done}, on {', '.join(names)}", *lines],
    )


async def one_broker(admin: AdminClient, broker: str | None) -> str:
    """The address of a broker, or of the first one by name."""
    return next(iter((await access.every_broker(admin, [broker] if broker else [])).values()))


PASSWORD_BYTES: Final = 24
"""Random bytes of a generated password."""

users: Final = CommandGroup("user", "Users of a cluster.")


class UserOptions(CommandOptions):
    """Settings of a user that is created or changed."""

    password_file: Path | None = option(
        "File whose first line is the password; - is standard input."
    )
    generate: bool = option("Make a random password, and print it.")
    is_super: bool | None = option("Whether the user may do everything.", "--super/--normal")
    enabled: bool | None = option("Whether its requests are accepted.", "--enable/--disable")
    broker: list[str] | None = BROKERS


@users.command("list")
async def list_users(
    admin: AdminClient,
    part: str = argument("Part of the names.", default=""),
    *,
    broker: str | None = ONE_BROKER,
) -> Result:
    """List users, without their passwords."""
    found = await access.users(admin, await one_broker(admin, broker), part)
    return Result(
        json=({"name": u.username, "type": u.user_type, "status": u.user_status} for u in found),
        text=_user_rows(found),
    )


def _user_rows(found: Sequence[UserInfo]) -> Iterator[Any]:
    rows = ((one.username or "", one.user_type or "", one.user_status or "") for one in found)
    yield table(("user", "type", "status"), rows) if found else "no user"


@users.command("create")
async def create_user(admin: AdminClient, name: UserArgument, options: UserOptions) -> Result:
    """Create a user on all brokers. Without a policy a normal one may do nothing."""
    if (password := _password(options)) is None:
        raise UsageError("a password is wanted: --password-file FILE, or --generate")
    return await _change_user(admin, name, options, password, create=True)


@users.command("update")
async def update_user(admin: AdminClient, name: UserArgument, options: UserOptions) -> Result:
    """Change a user's password, type or status on all brokers; what is not given stays."""
    password = _password(options)
    if password is None and options.is_super is None and options.enabled is None:
        raise UsageError("say what is to be changed: --help lists it")
    return await _change_user(admin, name, options, password, create=False)


async def _change_user(
    admin: AdminClient, name: str, options: UserOptions, password: str | None, *, create: bool
) -> Result:
    user_type = status = None
    if options.is_super is not None:
        user_type = str(UserType.SUPER if options.is_super else UserType.NORMAL)
    if options.enabled is not None:
        status = str(UserStatus.ENABLE if options.enabled else UserStatus.DISABLE)
    call = access.user_call(
        name, create=create, password=password, user_type=user_type, status=status
    )
    done = f"{name}: {'created' if create else 'changed'}"
    secret = password if options.generate else None
    return await make_change(
        admin, AccessChange(call=call, done=done, secret=secret), options.broker
    )


@users.command("delete")
async def delete_user(
    admin: AdminClient, name: UserArgument, options: DeletionOptions, as_json: bool
) -> Result:
    """Delete a user and its policies on all brokers."""
    change = AccessChange(
        call=access.delete_user_call(name),
        done=f"{name}: deleted",
        question=f"Delete {name} and its policies?",
    )
    return await make_change(admin, change, options.broker, yes=options.yes, as_json=as_json)


def _password(options: UserOptions) -> str | None:
    """The password of a file, or a new one; None without either. Options never hold one."""
    file = options.password_file
    if options.generate:
        if file is not None:
            raise UsageError("--generate and --password-file exclude each other")
        return token_urlsafe(PASSWORD_BYTES)
    if file is None:
        return None
    return secret_line(file)


policies: Final = CommandGroup("policy", "Policies of users.")

DEFAULT: Final = option("In the policy that counts where no other entry matches.")


class EntryOptions(CommandOptions):
    """Entries of a policy, one for each resource."""

    resource: list[str] = option("Topic:orders, Topic:orders-*, Group:*, …; may be repeated.", "-r")
    action: list[Action] = option("May be repeated.", "-a", case_sensitive=False)
    source: list[str] | None = option("IP address or CIDR block; may be repeated.")
    deny: bool = option("Deny it, and not allow it.")
    default: bool = DEFAULT
    broker: list[str] | None = BROKERS


class PolicyDeletionOptions(DeletionOptions):
    """Options of `roquet acl policy delete`."""

    resource: str | None = option("Of this entry; without it all.", "-r")
    default: bool = DEFAULT


@policies.command("list")
async def list_policies(
    admin: AdminClient,
    part: str = argument("Part of the names.", default="", metavar="[USER]"),
    resource: str = option("Part of resources.", "-r", default=""),
    broker: str | None = ONE_BROKER,
) -> Result:
    """List policies, an entry in a line."""
    found = await access.acls(admin, await one_broker(admin, broker), part, resource)
    return Result(json=found, text=_entry_rows(found))


def _entry_rows(acls: Sequence[AclInfo]) -> Iterator[Any]:
    rows = [
        _cells(info.subject or "", policy.policy_type or "", entry)
        for info in acls
        for policy in info.policies or []
        for entry in policy.entries or []
    ]
    columns = ("subject", "policy", "resource", "actions", "from", "decision")
    yield table(columns, rows) if rows else "no policy"


def _cells(subject: str, policy: str, entry: PolicyEntryInfo) -> Sequence[str]:
    actions = ", ".join(entry.actions or [])
    sources = ", ".join(entry.source_ips or ["anywhere"])
    return subject, policy, entry.resource or "", actions, sources, entry.decision or ""


@policies.command("create")
async def create_policy(admin: AdminClient, name: UserArgument, options: EntryOptions) -> Result:
    """Allow a user some actions on resources, or deny them, on all brokers."""
    return await make_change(admin, _change(name, options, create=True), options.broker)


@policies.command("update")
async def update_policy(admin: AdminClient, name: UserArgument, options: EntryOptions) -> Result:
    """Put entries in the place of those with the same resources, on all brokers."""
    return await make_change(admin, _change(name, options, create=False), options.broker)


@policies.command("delete")
async def delete_policy(
    admin: AdminClient, name: UserArgument, options: PolicyDeletionOptions, as_json: bool
) -> Result:
    """Delete the entry of a resource, or all policies of a user, on all brokers."""
    policy, what = _policy(options.default), options.resource or "all policies"
    change = AccessChange(
        call=access.delete_policy_call(name, options.resource, policy),
        done=f"{name}: {what} deleted",
        question=f"Delete {what} of {name}?",
    )
    return await make_change(admin, change, options.broker, yes=options.yes, as_json=as_json)


def _policy(is_default: bool) -> PolicyType:
    return PolicyType.DEFAULT if is_default else PolicyType.CUSTOM


def _change(name: str, options: EntryOptions, *, create: bool) -> AccessChange:
    decision = AccessDecision.DENY if options.deny else AccessDecision.ALLOW
    actions = [str(action) for action in options.action]
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=actions,
            source_ips=options.source or None,
            decision=str(decision),
        )
        for resource in options.resource
    ]
    verb, resources = "denied" if options.deny else "allowed", ", ".join(options.resource)
    return AccessChange(
        call=access.policy_call(name, entries, _policy(options.default), create=create),
        done=f"{name}: {verb} {', '.join(actions)} on {resources}",
    )
