"""docs/reference/settings.md: every setting, its genuine name, its default and what it means.

python tools/generators/settings_table.py            prints the document
python tools/generators/settings_table.py --write    writes it
"""

import argparse
import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import SETTINGS
from roquet.broker.settings.settings_format import own_text
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
from roquet.model.errors import ConfigError
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.handlers.settings import CHANGEABLE as NAME_SERVER_CHANGEABLE
from roquet.namesrv.handlers.settings import KEYS, UNUSED

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "settings.md"

BROKER_HEAD = """\
# Settings

This page is generated: `make map` writes it anew.

## A broker

A line of `broker.conf` is `key = value`, in our words or in genuine ones. Our times and sizes carry
a unit (`500ms`, `12h`, `4MiB`), genuine ones are the bare numbers that Apache RocketMQ reads. An
environment variable `ROQUET_<KEY>` wins over the file. What may change while the broker runs is
changed by `mqadmin updateBrokerConfig`, all of it or nothing, and written to the broker's file.

| key | genuine key | default | meaning | while it runs |
|---|---|---|---|---|
"""

NAME_SERVER_HEAD = """
## A name server

Options of `roquet namesrv`, and what `roquet namesrv set` changes until the next start.

| key | genuine key | default | meaning | while it runs |
|---|---|---|---|---|
"""

UNUSED_HEAD = """
## Settings of Apache RocketMQ without effect on a broker

They are taken, from the file and by `mqadmin updateBrokerConfig`, with one warning each; they are
kept, and told by `mqadmin getBrokerConfig` (`roquet broker settings --all`). Some others may have
one value alone, since another would promise what is not kept: `aclEnable` `false`, and the keys of
access control that name Java classes only the genuine ones, which stand for what is here.
"""

NAME_SERVER_UNUSED_HEAD = """
### Settings of Apache RocketMQ without effect on a name server

They are taken, kept until the next start and told by `mqadmin getNamesrvConfig`.

"""

TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))
SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, ""))


def meanings(module: str, name: str) -> dict[str, str]:
    """Docstrings below the fields of a class, by field."""
    tree = ast.parse((ROOT / "src" / "roquet" / module).read_text("utf-8"))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    found = {}
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            found[field.target.id] = documented(after)
    return found


def documented(node: ast.stmt) -> str:
    """The text of a docstring, in one line; nothing for anything else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def default(name: str) -> str:
    """A broker's default, as it would be written into its file."""
    value = getattr(BrokerConfig(), name, None)
    if value is None or value == ():
        return ""
    text = own_text(name, value)
    if text.endswith("ms") and text[:-2].isdigit():
        return amount(int(value), TIMES)
    if isinstance(value, int) and text.isdigit() and is_size(name):
        return amount(value, SIZES)
    return text


def is_size(name: str) -> bool:
    """Whether a setting counts bytes."""
    try:
        return bool(SETTINGS[name].parse("1KiB", name) == 1024)
    except ConfigError:
        return False


def amount(value: int, units: tuple[tuple[int, str], ...]) -> str:
    """A number in the largest unit that it is a multiple of."""
    size, unit = next((size, unit) for size, unit in units if value % size == 0)
    return f"{value // size}{unit}"


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def code(text: str) -> str:
    """A word of the configuration, if there is one."""
    return f"`{text}`" if text else ""


def broker_rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Key, genuine keys, default, meaning and whether it may change, of a broker's settings."""
    told = meanings("broker/settings/config.py", "BrokerConfig")
    for name, setting in SETTINGS.items():
        genuine = ", ".join(map(code, setting.apache_keys))
        changes = "" if setting.needs_restart else "changes"
        yield code(name), genuine, code(default(name)), told.get(name, ""), changes


def name_server_rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Rows of the settings of a name server."""
    told = meanings("namesrv/config.py", "NameServerConfig")
    genuine = {name: key for key, name in KEYS.items()}
    genuine |= {setting.name: key for key, setting in EXPORTER_SETTINGS.items()}
    for name in NameServerConfig.__struct_fields__:
        if name == "unused":
            continue
        value = getattr(NameServerConfig(), name)
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        text = "" if value is None else shown
        changes = "changes" if name in NAME_SERVER_CHANGEABLE else ""
        yield code(name), code(genuine.get(name, "")), code(text), told.get(name, ""), changes


def unused_sections() -> Iterator[str]:
    """A section for each reason why settings have no effect: the reason, then their keys."""
    reasons: dict[str, list[str]] = {}
    for key, setting in unused_settings().items():
        reasons.setdefault(setting.reason, []).append(key)
    for reason, keys in reasons.items():
        yield f"\n**{reason}**\n" + " ".join(map(code, sorted(keys))) + "\n"


def drawn() -> str:
    """The whole document."""
    broker = "".join(row(*cells) for cells in broker_rows())
    name_server = "".join(row(*cells) for cells in name_server_rows())
    unused = UNUSED_HEAD + "".join(unused_sections())
    rest = NAME_SERVER_UNUSED_HEAD + " ".join(code(key) for key in sorted(UNUSED)) + "\n"
    return f"{BROKER_HEAD}{broker}{unused}{NAME_SERVER_HEAD}{name_server}{rest}"


def main() -> None:
    """Print the document, or write it into its place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into its place, not printed")
    if not parser.parse_args().write:
        print(drawn())
        return
    DOCUMENT.parent.mkdir(parents=True, exist_ok=True)
    DOCUMENT.write_text(drawn(), "utf-8")


if __name__ == "__main__":
    main()
