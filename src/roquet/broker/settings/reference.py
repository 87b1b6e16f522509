"""Reference of a broker's settings: groups, meanings and defaults, for people who look one up."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import OWN_NAMES, SETTINGS
from roquet.broker.settings.settings_format import apache_text, own_text
from roquet.model.errors import ConfigError

FIRST_OF_GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "broker_name": "Names and addresses",
        "store_dir": "Directory and flushing",
        "auto_create_topic": "Topics and messages",
        "long_polling": "Consumers and filters",
        "trace_topic": "Traces and replies",
        "reject_transactions": "Transactions and delivery times",
        "permission": "Permission and region",
        "pull_count_memory": "Sizes of replies",
        "save_interval": "Intervals",
        "log_file_size": "Files and retention",
        "send_capacity": "Load limits",
        "tls_cert": "TLS and proxies",
        "ha_port": "Replication",
        "controller_mode": "Controllers and elections",
        "metrics_exporter": "Metrics and logs",
        "authentication_enabled": "Access control and quotas",
    }
)
"""Groups of settings, in the order of BrokerConfig, by the first setting of each."""

_TIMES: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))
_SIZES: Final = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, ""))


@cache
def group_of() -> Mapping[str, str]:
    """The group of each setting, in the order of the groups."""
    groups, group = dict[str, str](), ""
    for name in SETTINGS:
        group = groups[name] = FIRST_OF_GROUPS.get(name, group)
    return groups


@cache
def meanings() -> Mapping[str, str]:
    """Meanings of settings: the docstrings below their fields; empty without the source text."""
    try:
        return dict(documented_fields(inspect.getsource(BrokerConfig)))
    except OSError:
        return {}


def documented_fields(source: str) -> Iterator[tuple[str, str]]:
    """The fields of a class's source text, each with the docstring below it in one line."""
    (found,) = ast.parse(source).body
    assert isinstance(found, ast.ClassDef)
    for field, after in pairwise(found.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id, _docstring(after)


def default_text(name: str) -> str:
    """The default of a setting as it would be written into broker.conf; empty for none."""
    value = getattr(BrokerConfig(), name, None)
    if value is None or value == ():
        return ""
    text = own_text(name, value)
    if text.endswith("ms") and text[:-2].isdigit():
        return _amount(int(value), _TIMES)
    if isinstance(value, int) and text.isdigit() and _is_size(name):
        return _amount(value, _SIZES)
    return text


@cache
def reported_default(key: str) -> str:
    """The default of a setting as a broker reports it by Apache's key or ours; empty for none."""
    name = OWN_NAMES.get(key, key)
    value = getattr(BrokerConfig(), name, None)
    if value is None:
        return ""
    return own_text(name, value) if key == name else apache_text(name, value)


def _docstring(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value)).replace("\n", " ")
    return ""


def _is_size(name: str) -> bool:
    try:
        return bool(SETTINGS[name].parse("1KiB", name) == 1024)
    except ConfigError:
        return False


def _amount(number: int, units: tuple[tuple[int, str], ...]) -> str:
    """A number in the largest unit that it is a multiple of."""
    size, unit = next((size, unit) for size, unit in units if number % size == 0)
    return f"{number // size}{unit}"
