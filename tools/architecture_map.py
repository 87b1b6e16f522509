"""ARCHITECTURE.md's map of the rooms, drawn from every module's first docstring line.

python tools/architecture_map.py            prints the map
python tools/architecture_map.py --write    puts it into ARCHITECTURE.md
"""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "roquet"
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- map: begin (make map) -->\n"
END = "<!-- map: end -->\n"

FLOORS = (
    ("model",),
    ("rules", "wire"),
    ("store", "net", "arrow", "pictures"),
    ("namesrv", "broker", "client", "controller"),
    ("admin", "proxy"),
    ("spark", "dashboard", "testing"),
    ("cli",),
)
ROOMS = [room for floor in FLOORS for room in floor]


def summary(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def order(path: Path) -> tuple[bool, int, str]:
    """Modules before folders; rooms from the ground floor up; names in order."""
    rank = ROOMS.index(path.name) if path.parent == PACKAGE and path.name in ROOMS else len(ROOMS)
    return path.is_dir(), rank, path.name


def lines(folder: Path, depth: int) -> Iterator[str]:
    """A folder's own line, then what is in it."""
    yield f"{'  ' * depth}{folder.name + '/':<{22 - 2 * depth}}{summary(folder / '__init__.py')}"
    for path in sorted(folder.iterdir(), key=order):
        if path.is_dir() and (path / "__init__.py").exists():
            yield from lines(path, depth + 1)
        elif path.suffix == ".py" and path.name != "__init__.py":
            yield f"{'  ' * (depth + 1)}{path.name:<{20 - 2 * depth}}{summary(path)}"


def drawn() -> str:
    """The whole map, as ARCHITECTURE.md holds it."""
    text = "\n".join(line.rstrip() for line in lines(PACKAGE, 0))
    return f"{BEGIN}```\n{text}\n```\n{END}"


def section(document: str) -> str:
    """The part of a document between the map's two marks, with the marks."""
    begin, end = document.index(BEGIN), document.index(END) + len(END)
    return document[begin:end]


def main() -> None:
    """Print the map, or write it into its place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into its place, not printed")
    if not parser.parse_args().write:
        print(drawn())
        return
    document = DOCUMENT.read_text("utf-8")
    DOCUMENT.write_text(document.replace(section(document), drawn()), "utf-8")


if __name__ == "__main__":
    main()
