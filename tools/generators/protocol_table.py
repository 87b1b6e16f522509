"""docs/reference/protocol.md: every request of the protocol, who answers it, and the test for it.

python tools/generators/protocol_table.py            prints the document
python tools/generators/protocol_table.py --write    writes it
"""

import argparse
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from roquet.broker.handlers import HANDLERS, NOT_SERVED
from roquet.broker.handlers.unserved import UNSERVED
from roquet.controller.handlers import HANDLERS as CONTROLLERS
from roquet.namesrv.handlers import HANDLERS as NAME_SERVERS
from roquet.wire import calls
from roquet.wire.call import Call
from roquet.wire.calls.admin.client_forwarding import FORWARDED_CALLS
from roquet.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "protocol.md"

HEAD = """\
# Requests of the protocol

Every request of Apache RocketMQ 5.5.0 by its code. What nobody answers here gets response code 3
(REQUEST_CODE_NOT_SUPPORTED); the reason stands in the last column. This page is generated:
`make map` writes it anew.

| code | name | answered by | shown by, or the reason why not |
|---|---|---|---|
"""

FIRST = (
    "conversation",
    "broker/handlers",
    "namesrv",
    "controller",
    "broker",
    "client",
    "interop",
    "",
)
"""Rooms of the tests, those first that show most of a request."""

NOT_SHOWN = ("wire", "typing")
"""Rooms of the tests that look at bytes alone."""

Kind = type[Call[Any]]


def kinds() -> dict[RequestCode, list[Kind]]:
    """The calls of each code."""
    for module in pkgutil.walk_packages(calls.__path__, "roquet.wire.calls."):
        importlib.import_module(module.name)
    found: dict[RequestCode, list[Kind]] = {}
    for kind in (*HANDLERS, *NAME_SERVERS, *CONTROLLERS, *NOT_SERVED):
        if kind not in found.setdefault(kind.code, []):
            found[kind.code].append(kind)
    return found


def answered_by(kind: Kind) -> Iterator[str]:
    """The kinds of peers that answer a call."""
    if kind in HANDLERS:
        yield "broker"
    if kind in NAME_SERVERS:
        yield "name server"
    if kind in CONTROLLERS:
        yield "controller"
    if kind in NOT_SERVED or kind in FORWARDED_CALLS:
        yield "client"


@cache
def words() -> dict[Path, frozenset[str]]:
    """The words of each test."""
    tests = ROOT / "tests"
    return {
        path.relative_to(tests): frozenset(re.findall(r"\w+", path.read_text("utf-8")))
        for path in sorted(tests.rglob("test_*.py"))
        if path.relative_to(tests).parts[0] not in NOT_SHOWN
    }


def rank(path: Path) -> int:
    """How much a test shows, the least number the most."""
    return next(n for n, room in enumerate(FIRST) if path.as_posix().startswith(room))


def shown_by(kind: Kind) -> str:
    """A link to the test that shows a call best; nothing when none names it."""
    found = [path for path, held in words().items() if kind.__name__ in held]
    if not found:
        return ""
    best = min(found, key=lambda path: (rank(path), path.as_posix())).as_posix()
    return f"[{best}](../../tests/{best})"


def rows() -> Iterator[tuple[int, str, str, str]]:
    """Code, name, who answers, and the test or the reason."""
    known = kinds()
    for code in sorted(RequestCode):
        served = known.get(code, [])
        by = dict.fromkeys(who for kind in served for who in answered_by(kind))
        shown = next(filter(None, map(shown_by, served)), "")
        yield int(code), code.name, ", ".join(by), shown or UNSERVED.get(code, "")


def drawn() -> str:
    """The whole document."""
    lines = [f"| {code} | {name} | {by} | {why} |\n" for code, name, by, why in rows()]
    return HEAD + "".join(lines)


def columns(document: str) -> list[tuple[str, ...]]:
    """Code, name and who answers, of each row of a document."""
    found = re.findall(r"^\| (\d+) \| (\w+) \| ([^|]*) \|", document, re.MULTILINE)
    return [(code, name, by.strip()) for code, name, by in found]


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
