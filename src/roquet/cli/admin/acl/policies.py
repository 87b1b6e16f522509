"""roquet acl policy: list, create, update and delete entries of policies on all brokers."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.cli.admin.acl.on_brokers import (
    BROKERS,
    ONE_BROKER,
    AccessChange,
    DeletionOptions,
    UserArgument,
    make_change,
    one_broker,
)
from roquet.cli.command_options import CommandOptions, argument, option
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.terminal.output import table
from roquet.model.access import AccessDecision, Action, PolicyType
from roquet.wire.calls.access import AclInfo, PolicyEntryInfo

app: Final = CommandGroup("policy", "Policies of users.")

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


@app.command("list")
async def list_policies(
    admin: AdminClient,
    part: str = argument("Part of the names.", default="", metavar="[USER]"),
    resource: str = option("Part of resources.", "-r", default=""),
    broker: str | None = ONE_BROKER,
) -> Result:
    """List policies, an entry in a line."""
    found = await access.acls(admin, await one_broker(admin, broker), part, resource)
    return Result(json=found, text=_lines(found))


def _lines(acls: Sequence[AclInfo]) -> Iterator[Any]:
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


@app.command("create")
async def create_policy(admin: AdminClient, name: UserArgument, options: EntryOptions) -> Result:
    """Allow a user some actions on resources, or deny them, on all brokers."""
    return await make_change(admin, _change(name, options, create=True), options.broker)


@app.command("update")
async def update_policy(admin: AdminClient, name: UserArgument, options: EntryOptions) -> Result:
    """Put entries in the place of those with the same resources, on all brokers."""
    return await make_change(admin, _change(name, options, create=False), options.broker)


@app.command("delete")
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
