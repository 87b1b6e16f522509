"""Brokers: load, disk, roles and replicas; settings, changed while a broker runs."""

from collections.abc import Mapping
from urllib.parse import quote

import msgspec
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import brokers, replicas
from roquet.admin.brokers import BrokerStatus
from roquet.admin.client import AdminClient
from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.definitions import FIXED, OWN_NAMES, SETTINGS
from roquet.broker.settings.reference import group_of, meanings, reported_default
from roquet.dashboard.changes import change, done, form_text, shown_value
from roquet.dashboard.rendering import confirmation, page
from roquet.dashboard.request_context import admin_of
from roquet.dashboard.sampling.sampler import rate_of
from roquet.model.errors import NotFound, RoquetError
from roquet.model.settings import suggest


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a broker."""

    key: str
    value: str
    may_change: bool | None = None
    """Whether it can change while the broker runs; None for a broker that does not say."""
    name: str = ""
    """Roquet's own name; as the next ones, empty for settings of Apache's broker."""
    group: str = ""
    """Title of its group in the reference of settings."""
    meaning: str = ""
    default: str | None = None
    """The default, as the broker would report it; None where it is not known."""
    is_changed: bool = False
    """Whether the value differs from the default."""


def setting_rows(
    values: Mapping[str, str], query: str = "", *, changed_only: bool = False
) -> list[SettingRow]:
    """Settings as a broker reports them, by group, that have a text in their name or meaning.

    Those of Apache's that have no effect on Roquet's broker are left out.
    """
    if not reports_own_settings(values):
        rows = [SettingRow(key=key, value=shown_value(key, text)) for key, text in values.items()]
    else:
        order = {name: number for number, name in enumerate(SETTINGS)}
        rows = [_own_row(key, text) for key, text in values.items() if key not in unused_settings()]
        rows.sort(key=lambda row: (order.get(row.name, len(order)), row.key))
    part = query.lower()
    return [
        row
        for row in rows
        if part in f"{row.key}\n{row.name}\n{row.meaning}".lower()
        and (row.is_changed or not changed_only)
    ]


def _own_row(key: str, value: str) -> SettingRow:
    """A setting of Roquet's broker; keys that confirm a fixed value are a group of their own."""
    name = OWN_NAMES.get(key, key)
    if name not in SETTINGS:
        return SettingRow(key=key, value=value, may_change=False, group="Fixed values")
    default = reported_default(key)
    return SettingRow(
        key=key,
        value=shown_value(key, value),
        may_change=_may_change(key),
        name=name,
        group=group_of()[name],
        meaning=meanings().get(name, ""),
        default=default,
        is_changed=value != default,
    )


def reports_own_settings(values: Mapping[str, str]) -> bool:
    """Whether a broker reports settings that Apache RocketMQ does not have."""
    return any(name in values for name, setting in SETTINGS.items() if not setting.apache_keys)


def _may_change(key: str) -> bool:
    setting = SETTINGS.get(OWN_NAMES.get(key, key))
    return setting is not None and not setting.needs_restart and key not in FIXED


class BrokerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A broker in a list; None is what it does not say."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    software: str
    in_per_s: float | None
    out_per_s: float | None
    disk: float | None
    """Share of the disk in use, from 0 to 1."""
    today: int | None
    """Messages stored since midnight."""
    send_waiting: int | None
    """Requests that wait to be stored."""
    pull_waiting: int | None
    """Requests that wait to be read for."""
    booted_ms: int | None
    set_aside: int
    fault: str | None


def broker_row(broker: BrokerStatus) -> BrokerRow:
    """The row of a broker."""

    def whole(key: str) -> int | None:
        value = broker.number(key)
        return None if value is None else int(value)

    now, morning = whole("msgPutTotalTodayNow"), whole("msgPutTotalTodayMorning")
    return BrokerRow(
        cluster=broker.cluster,
        broker=broker.broker,
        broker_id=broker.broker_id,
        address=broker.address,
        software=broker.software,
        in_per_s=rate_of(broker.puts_per_s),
        out_per_s=rate_of(broker.gets_per_s),
        disk=broker.number("commitLogDiskRatio"),
        today=None if now is None or morning is None else now - morning,
        send_waiting=whole("sendThreadPoolQueueSize"),
        pull_waiting=whole("pullThreadPoolQueueSize"),
        booted_ms=whole("bootTimestamp"),
        set_aside=broker.set_aside,
        fault=broker.fault,
    )


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
    is_changed = request.query_params.get("changed") == "1"
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
        settings=setting_rows(values, query, changed_only=is_changed),
        replicas=shown,
        problems=[*problems, *replicas.problems(shown), *([problem] if problem else [])],
        only_html={"query": query, "changed_only": is_changed, "has_settings": bool(values)},
    )


async def preview_setting(request: Request) -> Response:
    """Preview of a change: a setting's value now and then."""
    name, params = request.path_params["name"], request.query_params
    key, value = params.get("key", "").strip(), params.get("value", "").strip()
    now = await brokers.settings(admin_of(request), name)
    _check_known(name, key, now)
    old, new = shown_value(key, now[key]), shown_value(key, value)
    return confirmation(
        request,
        f"Change {key} of {name}",
        [f"{name}: {key} is {old or 'empty'}, then {new or 'empty'}"],
        action=f"{broker_path(name)}/setting",
        verb="Change",
        fields=[("key", key), ("value", value)],
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
    """Raise NotFound for a setting that a broker does not report.

    Apache's brokers would accept it, and change nothing.
    """
    if key not in values:
        raise NotFound(f"{broker} has no setting {key!r}{suggest(key, [*values])}")


async def _statuses(admin: AdminClient, name: str) -> list[BrokerStatus]:
    every = await brokers.statuses(admin)
    found = [broker for broker in every if broker.broker == name]
    if not found:
        hint = suggest(name, [broker.broker for broker in every])
        raise NotFound(f"there is no broker {name!r}{hint}")
    return found


def _first(found: list[BrokerStatus]) -> str:
    """The broker of a name to ask for settings: the master, else the replica of the lowest id."""
    first = found[0]
    return first.broker if first.broker_id == 0 else f"{first.broker}#{first.broker_id}"


async def _replicas(
    admin: AdminClient, name: str | None
) -> tuple[list[replicas.ReplicaStatus], str | None]:
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
