"""docs/reference/settings.md: every setting, its genuine name, its default and what it means.

python tools/generators/settings_table.py            prints the document
python tools/generators/settings_table.py --write    writes it
"""

import argparse
import inspect
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.definitions import SETTINGS
from roquet.broker.settings.reference import (
    default_text,
    documented_fields,
    group_of,
    meanings,
)
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
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
"""

TABLE_HEAD = """
| key | genuine key | default | meaning | while it runs |
|---|---|---|---|---|
"""

NAME_SERVER_HEAD = """
## A name server

Options of `roquet namesrv`, and what `roquet namesrv set` changes until the next start.
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


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def code(text: str) -> str:
    """A word of the configuration, if there is one."""
    return f"`{text}`" if text else ""


def broker_sections() -> Iterator[str]:
    """A section for each group of a broker's settings: its title and its table."""
    for title, group in groupby(group_of().items(), key=itemgetter(1)):
        rows = "".join(row(*broker_row(name)) for name, _ in group)
        yield f"\n### {title}\n{TABLE_HEAD}{rows}"


def broker_row(name: str) -> tuple[str, str, str, str, str]:
    """Key, genuine keys, default, meaning and whether it may change, of a broker's setting."""
    setting = SETTINGS[name]
    genuine = ", ".join(map(code, setting.apache_keys))
    changes = "" if setting.needs_restart else "changes"
    return code(name), genuine, code(default_text(name)), meanings().get(name, ""), changes


def name_server_rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Rows of the settings of a name server."""
    told = dict(documented_fields(inspect.getsource(NameServerConfig)))
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
    broker = "".join(broker_sections())
    name_server = "".join(row(*cells) for cells in name_server_rows())
    unused = UNUSED_HEAD + "".join(unused_sections())
    rest = NAME_SERVER_UNUSED_HEAD + " ".join(code(key) for key in sorted(UNUSED)) + "\n"
    return f"{BROKER_HEAD}{broker}{unused}{NAME_SERVER_HEAD}{TABLE_HEAD}{name_server}{rest}"


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
