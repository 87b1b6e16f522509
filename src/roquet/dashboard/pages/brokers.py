"""Brokers: load, disk, roles and replicas; settings, changed while a broker runs."""

from urllib.parse import quote

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import brokers, replicas
from roquet.admin.brokers import BrokerStatus
from roquet.admin.client import AdminClient
from roquet.dashboard.changes import change, done, form_text
from roquet.dashboard.facts.broker_rows import broker_row
from roquet.dashboard.facts.setting_rows import setting_rows
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of
from roquet.dashboard.security.secret_settings import shown_value
from roquet.model.errors import RoquetError, UsageError
from roquet.model.settings import suggest


async def list_brokers(request: Request) -> Response:
    """Every broker with its load and its disk, and the replicas of each name."""
    admin = admin_of(request)
    found = await brokers.statuses(admin)
    shown, problem = await _replicas(admin, None)
    return page(
        request,
        "brokers.html",
        brokers=[broker_row(broker) for broker in found],
        replicas=shown,
        problems=[*replicas.problems(shown), *([problem] if problem else [])],
    )


async def show_broker(request: Request) -> Response:
    """One broker: its settings, its statistics, its replicas."""
    name, query = request.path_params["name"], request.query_params.get("q", "").strip()
    admin = admin_of(request)
    found = await _statuses(admin, name)
    problems = [f"{name}#{b.broker_id} does not answer: {b.fault}" for b in found if b.fault]
    try:
        values = await brokers.settings(admin, _first(found))
    except RoquetError as error:
        values = {}
        problems.append(f"its settings are not known: {error}")
    shown, problem = await _replicas(admin, name)
    return page(
        request,
        "broker.html",
        broker=name,
        rows=[broker_row(broker) for broker in found],
        info={f"{b.broker}#{b.broker_id}": b.info for b in found if b.info},
        settings=setting_rows(values, query),
        replicas=shown,
        problems=[*problems, *replicas.problems(shown), *([problem] if problem else [])],
        only_html={"query": query},
    )


async def preview_setting(request: Request) -> Response:
    """Preview of a change: a setting's value now and then."""
    name, params = request.path_params["name"], request.query_params
    key, value = params.get("key", "").strip(), params.get("value", "").strip()
    now = await brokers.settings(admin_of(request), name)
    _check_known(name, key, now)
    old, new = shown_value(key, now[key]), shown_value(key, value)
    return page(
        request,
        "confirm.html",
        title=f"Change {key} of {name}",
        lines=[f"{name}: {key} is {old or 'empty'}, then {new or 'empty'}"],
        only_html={
            "back": broker_path(name),
            "action": f"{broker_path(name)}/setting",
            "fields": [("key", key), ("value", value)],
            "verb": "Change",
            "typed_name": None,
        },
    )


@change("broker.setting")
async def change_setting(request: Request, form: FormData) -> Response:
    """Change one setting of a running broker."""
    name, key = request.path_params["name"], form_text(form, "key")
    admin = admin_of(request)
    _check_known(name, key, await brokers.settings(admin, name))
    await brokers.configure(admin, name, {key: form_text(form, "value", "")})
    return done(request, f"{broker_path(name)}?q={quote(key, safe='')}", f"{key} is changed")


def broker_path(name: str) -> str:
    """The page of a broker."""
    return f"/brokers/{quote(name, safe='')}"


def _check_known(broker: str, key: str, values: dict[str, str]) -> None:
    """Raise UsageError for a setting that a broker does not report.

    Apache's brokers would accept it, and change nothing.
    """
    if key not in values:
        raise UsageError(f"{broker} has no setting {key!r}{suggest(key, [*values])}")


async def _statuses(admin: AdminClient, name: str) -> list[BrokerStatus]:
    every = await brokers.statuses(admin)
    found = [broker for broker in every if broker.broker == name]
    if not found:
        hint = suggest(name, [broker.broker for broker in every])
        raise UsageError(f"there is no broker {name!r}{hint}")
    return found


def _first(found: list[BrokerStatus]) -> str:
    """The broker of a name to ask for settings: the master, else the replica of the lowest id."""
    first = found[0]
    return first.broker if first.broker_id == 0 else f"{first.broker}#{first.broker_id}"


async def _replicas(
    admin: AdminClient, name: str | None
) -> tuple[list[replicas.ReplicaStatus], str | None]:
    """Replicas, and why they are not known."""
    try:
        return await replicas.statuses(admin, name), None
    except RoquetError as error:
        return [], f"replicas are not known: {error}"


ROUTES = [
    Route("/brokers", list_brokers),
    Route("/brokers/{name:path}/setting", preview_setting),
    Route("/brokers/{name:path}/setting", change_setting, methods=["POST"]),
    Route("/brokers/{name:path}", show_broker),
]
