"""The house in figures: files, lines, folders, names, import circles, words, and the tests' time.

python tools/gates/house.py                       prints the table
python tools/gates/house.py --json                prints the same figures as one JSON object
python tools/gates/house.py --test-time JUNITXML  adds the time of `pytest --junitxml JUNITXML`
python tools/gates/house.py --names 10 --seed 7   prints public classes drawn at random

Run before and after a renovation, it says whether the code became easier to find one's way in.
"""

import argparse
import ast
import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]
TOP_FOLDERS = ("src", "simulation", "tests", "tools", "bench", "harness", "demos", "examples")
PACKAGES = ("src/roquet", "src/pyspark_roquet", "simulation")

VAGUE = "util utils helper helpers common base manager impl"
"""Words that say where a thing was put, not what it is."""

METAPHORS = (
    "hall guest sitting sift stock clerk courier errand lane lanes parcel parcels "
    "stretch stretches footprint glance fronts doubles shop ledger mishap undead unburied "
    "neighbours homes lineup gathering taste surroundings standings planting cast"
)
"""Pictures that stood where the field has a term: server limits, not a hall."""

PARTICIPLES = "told given kept beside around apart alike"
"""Participles, adverbs and prepositions that do not name a thing."""

BANNED_WORDS = frozenset(f"{VAGUE} {METAPHORS} {PARTICIPLES}".split())
BANNED_MODULES = frozenset(("ahead", "directly", "letters"))
"""Words that say too little as the whole name of a module, and enough as a part of one."""

BANNED_BEGINNINGS = ("The same", "What", "Who", "Whoever", "Whether or not", "One that", "Told")
"""Beginnings of docstrings that no search engine leads to."""

WIDEST_FOLDERS = 15
SLOWEST_FILES = 12


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


@cache
def sources(root: Path = ROOT) -> Mapping[str, Path]:
    """Every module of the packages, by its dotted name; a package is its `__init__.py`."""
    paths = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return {module_name(path, root): path for path in sorted(paths)}


def module_name(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a file of a package."""
    parts = importable(path, root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importable(path: Path, root: Path = ROOT) -> Path:
    """A path as imports see it: `src` is none of its folders."""
    inside = path.relative_to(root)
    return inside.relative_to("src") if inside.is_relative_to("src") else inside


def sizes(root: Path = ROOT) -> dict[str, dict[str, int]]:
    """Files and lines of Python below each top folder."""
    table = {}
    for folder in TOP_FOLDERS:
        texts = [path.read_text("utf-8") for path in (root / folder).rglob("*.py")]
        table[folder] = {"files": len(texts), "lines": sum(text.count("\n") for text in texts)}
    return table


def modules_per_folder(root: Path = ROOT) -> dict[str, int]:
    """Modules of each folder without its `__init__.py`, the widest folder first."""
    count = Counter(
        importable(path.parent, root).as_posix()
        for path in sources(root).values()
        if path.name != "__init__.py"
    )
    return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def public_classes(path: Path) -> Iterator[ast.ClassDef]:
    """Classes at the top level of a module whose names do not begin with an underscore."""
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


def is_alias_name(name: str) -> bool:
    """Whether a name is in CapWords, as type aliases are and constants are not."""
    return name[:1].isupper() and not name.isupper()


def type_aliases(path: Path) -> Iterator[str]:
    """Names of a module's type aliases: `Name = …`, `Name: TypeAlias = …`, `type Name = …`."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            name = ast.unparse(node.target)
        elif type(node).__name__ == "TypeAlias":  # `type Name = …`, from Python 3.12 on
            name = ast.unparse(node).removeprefix("type ").split(" ")[0]
        else:
            continue
        if is_alias_name(name):
            yield name


def definitions(root: Path = ROOT, *, with_aliases: bool) -> dict[str, list[str]]:
    """The modules that define each public class, or public class and type alias."""
    places = defaultdict(list)
    for module, path in sources(root).items():
        names = {node.name for node in public_classes(path)}
        for name in sorted(names | set(type_aliases(path)) if with_aliases else names):
            places[name].append(module)
    return dict(sorted(places.items()))


def several_meanings(root: Path = ROOT, *, with_aliases: bool = True) -> dict[str, list[str]]:
    """Public names that more than one module defines, the most frequent first."""
    names = definitions(root, with_aliases=with_aliases)
    shared = {name: modules for name, modules in names.items() if len(modules) > 1}
    return dict(sorted(shared.items(), key=lambda item: (-len(item[1]), item[0])))


def is_type_checking(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def import_statements(node: ast.AST, *, type_only: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Imports anywhere in a tree, each with whether only type checkers see it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, type_only
        else:
            yield from import_statements(child, type_only=type_only or is_type_checking(child))


def imported_modules(module: str, root: Path, *, with_type_checking: bool) -> set[str]:
    """Modules of the packages that a module imports, in functions too."""
    known = sources(root)
    names: set[str] = set()
    for statement, type_only in import_statements(tree_of(known[module])):
        if type_only and not with_type_checking:
            continue
        if isinstance(statement, ast.Import):
            names.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            inside = {f"{statement.module}.{alias.name}" for alias in statement.names}
            names.update(inside & known.keys() or {statement.module})
    return (names & known.keys()) - {module}


def reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Nodes that a path of at least one edge leads to."""
    reached: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += graph[node]
    return reached


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other, each sorted (strongly connected components)."""
    reached = {node: reachable(graph, node) for node in graph}
    groups = {
        tuple(sorted(other for other in reached[node] if node in reached[other]))
        for node in graph
        if node in reached[node]
    }
    return [list(group) for group in sorted(groups)]


def import_circles(root: Path = ROOT, *, with_type_checking: bool = True) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    graph = {
        module: sorted(imported_modules(module, root, with_type_checking=with_type_checking))
        for module in sources(root)
    }
    return circles(graph)


def words_of(name: str) -> set[str]:
    """The words of a name in snake_case or CapWords, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def banned_words(root: Path = ROOT) -> dict[str, list[str]]:
    """Modules and public classes whose names have a banned word, with these words."""
    banned = {}
    for module, path in sources(root).items():
        name = module.rpartition(".")[2]
        banned[module] = sorted(words_of(name) & BANNED_WORDS | {name} & BANNED_MODULES)
        for node in public_classes(path):
            banned[f"{module}.{node.name}"] = sorted(words_of(node.name) & BANNED_WORDS)
    return {where: words for where, words in sorted(banned.items()) if words}


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings of a file with their lines: of modules, classes, functions, and of constants."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, text


def banned_beginnings(root: Path = ROOT) -> dict[str, str]:
    """Docstrings with a banned beginning: `path:line` and their first lines; not those of tests."""
    words = "|".join(BANNED_BEGINNINGS)
    pattern, quoted = re.compile(rf"(?:{words})\b"), re.compile(rf"[\"']\s*(?:{words})\b")
    return {
        f"{path.relative_to(root).as_posix()}:{line}": text.strip().partition("\n")[0]
        for folder in TOP_FOLDERS
        if folder != "tests"
        for path in sorted((root / folder).rglob("*.py"))
        if quoted.search(path.read_text("utf-8"))  # most files need no look at their trees
        for line, text in docstrings(path)
        if pattern.match(text.strip())
    }


def figures(root: Path = ROOT) -> dict[str, Any]:
    """All figures but the tests' time."""
    at_run_time = import_circles(root, with_type_checking=False)
    all_circles = import_circles(root)
    return {
        "sizes": sizes(root),
        "modules_per_folder": modules_per_folder(root),
        "public_class_names": len(definitions(root, with_aliases=False)),
        "public_names_with_aliases": len(definitions(root, with_aliases=True)),
        "classes_with_several_meanings": len(several_meanings(root, with_aliases=False)),
        "several_meanings": several_meanings(root),
        "import_circles": [circle for circle in all_circles if circle in at_run_time],
        "type_only_circles": [circle for circle in all_circles if circle not in at_run_time],
        "banned_words": banned_words(root),
        "banned_beginnings": banned_beginnings(root),
    }


def test_time(report: Path) -> dict[str, Any]:
    """Seconds of a test run, from pytest's JUnit XML: by the clock, added up, of each file."""
    suites = [*ET.parse(report).getroot().iter("testsuite")]
    cases = [case for suite in suites for case in suite.iter("testcase")]
    by_file: dict[str, float] = defaultdict(float)
    for case in cases:
        by_file[case.attrib["classname"]] += float(case.attrib["time"])
    slowest = sorted(by_file.items(), key=lambda item: -item[1])[:SLOWEST_FILES]
    return {
        "tests": len(cases),
        "seconds": sum(float(suite.attrib["time"]) for suite in suites),
        "seconds_of_all_tests": sum(by_file.values()),
        "slowest_files": {name: round(time, 1) for name, time in slowest},
    }


def listed(entries: Iterable[str]) -> str:
    """Indented lines."""
    return "".join(f"    {entry}\n" for entry in entries)


def table(house: Mapping[str, Any]) -> str:
    """The figures as text; of the folders only the widest."""
    folders = house["modules_per_folder"]
    meanings = house["several_meanings"]
    text = "Python            files    lines\n"
    for folder, size in house["sizes"].items():
        text += f"  {folder:<14}{size['files']:7,}{size['lines']:9,}\n"
    text += f"\nModules in a folder: {len(folders)} folders, the widest:\n"
    text += "".join(f"{count:7}  {name}\n" for name, count in [*folders.items()][:WIDEST_FOLDERS])
    text += f"\nPublic class names: {house['public_class_names']}, "
    text += f"defined in more than one module: {house['classes_with_several_meanings']}\n"
    text += f"With type aliases: {house['public_names_with_aliases']}, "
    text += f"defined in more than one module: {len(meanings)}\n"
    text += listed(f"{name}: {', '.join(modules)}" for name, modules in meanings.items())
    for key in ("import_circles", "type_only_circles"):
        text += f"\n{key.replace('_', ' ').capitalize()}: {len(house[key])}\n"
        text += listed(" ↔ ".join(circle) for circle in house[key])
    text += f"\nNames with banned words: {len(house['banned_words'])}\n"
    text += listed(house["banned_words"])
    text += f"\nDocstrings with banned beginnings: {len(house['banned_beginnings'])}\n"
    return text


def test_time_table(times: Mapping[str, Any]) -> str:
    """The tests' time as text."""
    text = f"\nTests: {times['tests']:,} in {times['seconds']:.0f} s by the clock, "
    text += f"{times['seconds_of_all_tests']:.0f} s one after another\n"
    return text + listed(f"{time:7.1f} s  {name}" for name, time in times["slowest_files"].items())


def drawn_names(number: int, seed: int, root: Path = ROOT) -> list[str]:
    """Public classes drawn at random: name, module and the docstring's first line."""
    classes = [
        f"{node.name} ({module}): {(ast.get_docstring(node) or '').partition(chr(10))[0]}"
        for module, path in sources(root).items()
        for node in public_classes(path)
    ]
    return random.Random(seed).sample(classes, min(number, len(classes)))


def main(arguments: list[str] | None = None, root: Path = ROOT) -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--test-time", type=Path, metavar="JUNITXML", help="a report of pytest")
    parser.add_argument("--names", type=int, metavar="N", help="public classes drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default 0)")
    options = parser.parse_args(arguments)
    if options.names is not None:
        lines = drawn_names(options.names, options.seed, root)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return
    house = figures(root)
    times = test_time(options.test_time) if options.test_time else None
    if options.json:
        sys.stdout.write(json.dumps(house | ({"test_time": times} if times else {}), indent=1))
        sys.stdout.write("\n")
    else:
        sys.stdout.write(table(house) + (test_time_table(times) if times else ""))


if __name__ == "__main__":
    main()
