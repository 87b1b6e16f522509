"""roquet acl policy: list, create, update and delete entries of policies on all brokers."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.admin.acl.on_brokers import (
    AccessBrokersOption,
    AccessChange,
    OneBrokerOption,
    UserArgument,
    make_change,
    one_broker,
)
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.terminal.output import YesOption, table
from roquet.model.access import AccessDecision, Action, PolicyType

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient
    from roquet.wire.calls.access import AclInfo, PolicyEntryInfo

app: Final = CommandGroup("policy", "Policies of users.")

ResourceOption = Annotated[
    list[str],
    typer.Option(
        "--resource", "-r", help="Topic:orders, Topic:orders-*, Group:*, …; may be repeated."
    ),
]
ActionOption = Annotated[
    list[Action], typer.Option("--action", "-a", help="May be repeated.", case_sensitive=False)
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--source", help="IP address or CIDR block; may be repeated."),
]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny it, and not allow it.")]
DefaultOption = Annotated[
    bool, typer.Option("--default", help="In the policy that counts where no other entry matches.")
]


@app.command("list")
async def list_policies(
    admin: "AdminClient",
    part: Annotated[str, typer.Argument(metavar="[USER]", help="Part of the names.")] = "",
    *,
    resource: Annotated[str, typer.Option("--resource", "-r", help="Part of resources.")] = "",
    broker: OneBrokerOption = None,
) -> Result:
    """List policies, an entry in a line."""
    from roquet.admin import access

    found = await access.acls(admin, await one_broker(admin, broker), part, resource)
    return Result(json=found, text=_lines(found))


def _lines(acls: "Sequence[AclInfo]") -> Iterator[Any]:
    rows = [
        (info.subject or "", policy.policy_type or "", entry)
        for info in acls
        for policy in info.policies or []
        for entry in policy.entries or []
    ]
    shown = table("subject", "policy", "resource", "actions", "from", "decision")
    for subject, kind, entry in rows:
        cells = (subject, kind, entry.resource or "", ", ".join(entry.actions or []))
        shown.add_row(*cells, ", ".join(entry.source_ips or ["anywhere"]), entry.decision or "")
    yield shown if rows else "no policy"


@app.command("create")
async def create_policy(  # noqa: PLR0913 - each is an option
    admin: "AdminClient",
    name: UserArgument,
    *,
    resource: ResourceOption,
    action: ActionOption,
    source: SourceOption = None,
    deny: DenyOption = False,
    default: DefaultOption = False,
    broker: AccessBrokersOption = None,
) -> Result:
    """Allow a user some actions on resources, or deny them, on all brokers."""
    entries = _entries(resource, action, source, deny=deny)
    change = _change(name, entries, _policy(default=default), create=True)
    return await make_change(admin, change, broker)


@app.command("update")
async def update_policy(  # noqa: PLR0913 - each is an option
    admin: "AdminClient",
    name: UserArgument,
    *,
    resource: ResourceOption,
    action: ActionOption,
    source: SourceOption = None,
    deny: DenyOption = False,
    default: DefaultOption = False,
    broker: AccessBrokersOption = None,
) -> Result:
    """Put entries in the place of those with the same resources, on all brokers."""
    entries = _entries(resource, action, source, deny=deny)
    change = _change(name, entries, _policy(default=default), create=False)
    return await make_change(admin, change, broker)


@app.command("delete")
async def delete_policy(
    admin: "AdminClient",
    as_json: bool,
    name: UserArgument,
    *,
    resource: Annotated[
        str | None, typer.Option("--resource", "-r", help="Of this entry; without it all.")
    ] = None,
    default: DefaultOption = False,
    broker: AccessBrokersOption = None,
    yes: YesOption = False,
) -> Result:
    """Delete the entry of a resource, or all policies of a user, on all brokers."""
    from roquet.admin import access

    policy, what = _policy(default=default), resource or "all policies"
    change = AccessChange(
        call=access.delete_policy_call(name, resource, policy),
        done=f"{name}: {what} deleted",
        question=f"Delete {what} of {name}?",
    )
    return await make_change(admin, change, broker, yes=yes, as_json=as_json)


def _policy(*, default: bool) -> PolicyType:
    return PolicyType.DEFAULT if default else PolicyType.CUSTOM


def _entries(
    resources: list[str], actions: list[Action], sources: list[str] | None, *, deny: bool
) -> "list[PolicyEntryInfo]":
    """An entry for each resource."""
    from roquet.wire.calls.access import PolicyEntryInfo

    decision = AccessDecision.DENY if deny else AccessDecision.ALLOW
    return [
        PolicyEntryInfo(
            resource=resource,
            actions=[str(action) for action in actions],
            source_ips=sources or None,
            decision=str(decision),
        )
        for resource in resources
    ]


def _change(
    name: str, entries: "list[PolicyEntryInfo]", policy: PolicyType, *, create: bool
) -> AccessChange:
    """The change that gives a user these entries."""
    from roquet.admin import access

    is_denied = entries[0].decision == AccessDecision.DENY
    actions = ", ".join(entries[0].actions or [])
    resources = ", ".join(entry.resource or "" for entry in entries)
    return AccessChange(
        call=access.policy_call(name, entries, policy, create=create),
        done=f"{name}: {'denied' if is_denied else 'allowed'} {actions} on {resources}",
    )
