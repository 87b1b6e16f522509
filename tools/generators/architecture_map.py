"""ARCHITECTURE.md's map of packages, drawn from each package's first docstring line.

python tools/generators/architecture_map.py               prints the map
python tools/generators/architecture_map.py --write       puts it into ARCHITECTURE.md
python tools/generators/architecture_map.py net store     prints the modules of these packages
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "gates")]

import house  # noqa: E402

PACKAGE = ROOT / "src" / "roquet"
SIMULATION = ROOT / "simulation"
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- map: begin (make map) -->\n"
END = "<!-- map: end -->\n"

LAYERS = (
    ("model",),
    ("rules", "wire"),
    ("access", "observe"),
    ("store", "net", "arrow", "pictures"),
    ("namesrv", "broker", "client", "controller"),
    ("admin", "proxy"),
    ("lake",),
    ("spark", "lab", "dashboard", "testing"),
    ("cli",),
)
PACKAGES = [package for layer in LAYERS for package in layer]


@cache
def summary(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(house.tree_of(path)) or "").partition("\n")[0]


def order(path: Path) -> tuple[int, str]:
    """Sorts top packages from the lowest layer up, others by name."""
    is_top = path.parent == PACKAGE and path.name in PACKAGES
    return PACKAGES.index(path.name) if is_top else len(PACKAGES), path.name


def packages(folder: Path) -> list[Path]:
    """The packages directly in a folder."""
    return sorted((init.parent for init in folder.glob("*/__init__.py")), key=order)


def lines(folder: Path, depth: int = 0) -> Iterator[str]:
    """A line for a package, then those of the packages in it."""
    yield f"{'  ' * depth}{folder.name + '/':<{20 - 2 * depth}}{summary(folder / '__init__.py')}"
    for package in packages(folder):
        yield from lines(package, depth + 1)


def drawn() -> str:
    """The whole map, as ARCHITECTURE.md holds it."""
    text = "\n".join(line.rstrip() for line in (*lines(PACKAGE), *lines(SIMULATION)))
    return f"{BEGIN}```\n{text}\n```\n{END}"


def modules(folder: Path) -> str:
    """A package's line, and one for each of its modules."""
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    name = folder.relative_to(PACKAGE if folder.is_relative_to(PACKAGE) else ROOT).as_posix()
    text = f"{name}/: {summary(folder / '__init__.py')}\n"
    return text + "".join(f"  {path.name:<24}{summary(path)}\n" for path in files)


def folder_of(name: str) -> Path:
    """The folder of a package, named from src/roquet or from the root on."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else ROOT / name


def section(document: str) -> str:
    """The part of a document between the map's two comments, with the comments."""
    begin, end = document.index(BEGIN), document.index(END) + len(END)
    return document[begin:end]


def main() -> None:
    """Print the map or modules, or write the map into its place."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="into its place, not printed")
    parser.add_argument("packages", nargs="*", help="e.g. broker/handlers, simulation")
    options = parser.parse_args()
    if options.packages:
        folders = (folder_of(name) for name in options.packages)
        print("\n".join(modules(folder) for folder in folders), end="")
    elif options.write:
        document = DOCUMENT.read_text("utf-8")
        DOCUMENT.write_text(document.replace(section(document), drawn()), "utf-8")
    else:
        print(drawn())


if __name__ == "__main__":
    main()
