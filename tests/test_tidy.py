"""Properties of the code itself: what the house style promises, and what grows crooked first."""

import ast
import gc
import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import architecture_map
import house
import worst_requests
from roquet.broker.handlers.unserved import UNSERVED
from roquet.wire import calls, codes
from roquet.wire.call import Call

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "roquet"
SIMULATION = ROOT / "simulation"
SOURCES = frozenset((*(ROOT / "src").rglob("*.py"), *SIMULATION.rglob("*.py")))
MODULES = sorted(
    path
    for package in (PACKAGE, SIMULATION)
    for path in package.rglob("*.py")
    if not path.stem.startswith("__")
)
CODE = sorted(
    p
    for folder in ("src", "simulation", "tests", "tools", "bench", "harness", "demos")
    for p in (ROOT / folder).rglob("*.py")
)

MAIN = "__name__ == '__main__'"

FUNCTION_LINES_MAX = 60
"""A longer function hides a second idea."""

SAME_NAMES = {
    "Params",  # of each Spark job
    # The blocking twins of roquet.client bear the names of their originals.
    "Producer",
    "TransactionProducer",
    "PushConsumer",
    "PullConsumer",
    "PopConsumer",
    "MessageHandler",
    "BatchHandler",
    "ReceivedMessage",
    "PoppedMessage",
}
"""Public names that more than one module may define."""

CAPTURED = {"RequestCode": "request", "ResponseCode": "response", "Language": "language"}
"""Each enum of the wire, and the kind of its captured constants."""

NOT_CAPTURED = {"SerializeType": {"JSON": 0, "ROCKETMQ": 1}}


@pytest.fixture(scope="module", autouse=True)
def syntax_trees() -> Iterator[None]:
    """Parses each file once, and keeps the trees from garbage collections and from later tests."""
    gc.disable()
    yield
    house.tree_of.cache_clear()
    gc.enable()


LINES_MAX = {
    "access": 1_244,
    "admin": 5_978,
    "arrow": 1_289,
    "broker": 24_437,
    "cli": 10_820,
    "client": 14_064,
    "controller": 2_838,
    "dashboard": 6_932,
    "integrations": 3_304,
    "lab": 3_111,
    "lake": 10_483,
    "metrics": 959,
    "model": 1_786,
    "namesrv": 1_186,
    "net": 4_596,
    "observe": 910,
    "pictures": 607,
    "proxy": 4_416,
    "rules": 9_179,
    "spark": 12_040,
    "store": 11_094,
    "testing": 1_299,
    "wire": 11_493,
    "all of src": 144_169,
    "tests": 178_614,
}
"""Lines of Python and Cython in each package, in all of them, and of Python in tests. Size is the
cost that stays: lower a number when it fell; raise it only with a reason in the commit."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def line_count(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def test_no_package_outgrows_its_lines() -> None:
    kinds = ("*.py", "*.pyx", "*.pxi")
    found = (path for kind in kinds for path in PACKAGE.rglob(kind))
    files = [p for p in found if "__pycache__" not in p.parts]
    folders = groupby(sorted(files), key=lambda path: path.relative_to(PACKAGE).parts[0])
    lines = {folder: line_count(group) for folder, group in folders if "." not in folder}
    lines |= {"all of src": line_count(files), "tests": line_count((ROOT / "tests").rglob("*.py"))}
    assert lines.keys() == LINES_MAX.keys()
    grown = {name: n for name, n in lines.items() if n > LINES_MAX[name]}
    assert grown == {}, "lower a number when it fell; raise it only with a reason in the commit"


def has_tests(module: Path) -> bool:
    """Whether the same path below tests/ holds at least one test."""
    path = module.relative_to(PACKAGE if module.is_relative_to(PACKAGE) else ROOT)
    tests = ROOT / "tests" / path.with_name(f"test_{module.name}")
    sentence = re.compile(r"^ *(async )?def test_", re.MULTILINE)
    return tests.exists() and sentence.search(tests.read_text("utf-8")) is not None


def test_every_module_has_tests_of_its_own() -> None:
    assert [name_of(module) for module in MODULES if not has_tests(module)] == []


def test_every_module_says_first_what_it_is() -> None:
    sentence = re.compile(r"\w.*[.:]")
    silent = [p for p in SOURCES if not sentence.fullmatch(architecture_map.summary(p))]
    assert [name_of(path) for path in silent] == []


def test_the_map_in_the_architecture_is_the_territory() -> None:
    document = architecture_map.DOCUMENT.read_text("utf-8")
    assert architecture_map.section(document) == architecture_map.drawn(), "`make map` redraws it"


def function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    waiting = [*house.tree_of(path).body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name_of(path)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1
        for field in ("body", "orelse", "finalbody"):  # no need to look into expressions
            waiting += getattr(node, field, [])


def test_no_function_is_longer_than_a_page() -> None:
    lengths = {name: length for path in CODE for name, length in function_lengths(path)}
    assert {name: n for name, n in lengths.items() if n > FUNCTION_LINES_MAX} == {}


def test_a_program_begins_when_all_of_it_is_defined() -> None:
    early = []
    for path in CODE:
        body = house.tree_of(path).body
        conditions = (node.test for node in body[:-1] if isinstance(node, ast.If))
        early += [name_of(path) for test in conditions if ast.unparse(test) == MAIN]
    assert early == []


def test_every_name_says_what_the_thing_is() -> None:
    assert house.banned_words() == {}


def test_a_public_name_has_one_meaning() -> None:
    shared = house.several_meanings()
    assert {name: modules for name, modules in shared.items() if name not in SAME_NAMES} == {}
    assert SAME_NAMES - shared.keys() == set(), "no exceptions any more"


def test_docstrings_begin_with_what_one_would_search_for() -> None:
    assert house.banned_beginnings() == {}


PUBLIC_UNDERSCORES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace", "_exit"}
"""Public names of named tuples and of `os` that begin with an underscore all the same."""

BY_NAME = {"setattr", "getattr", "delattr", "object", "patched", "planted", "wrapped"}
"""Functions that take an attribute's name, among them `monkeypatch.setattr` and `patch.object`."""


def names_used(node: ast.AST) -> list[str]:
    """Names of other objects in a node: attributes, also those given as text, and imports."""
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return []
        case ast.Attribute(attr=name):
            return [name]
        case ast.ImportFrom(names=aliases):
            return [alias.name for alias in aliases]
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in BY_NAME:
            values = [one.value for one in node.args if isinstance(one, ast.Constant)]
            return [value.rpartition(".")[2] for value in values if isinstance(value, str)]
    return []


MAY_BE_PRIVATE = re.compile(
    r"""(?<!\bself)(?<!\bcls)\._(?!_) | ["']_(?!_) | \bimport\b[^=]*?\b_(?!_)""", re.VERBOSE
)
"""Found in each text that uses a private name, and in few others: those need no syntax tree."""


def private_names(source: str) -> list[str]:
    """Private names of other objects that a source text uses; those like `__init__` are not."""
    if MAY_BE_PRIVATE.search(source) is None:
        return []
    used = [name for node in ast.walk(ast.parse(source)) for name in names_used(node)]
    return [name for name in used if re.match("_(?!_)", name) and name not in PUBLIC_UNDERSCORES]


def test_uses_of_private_names_are_recognized() -> None:
    assert private_names("from a import _b; x._c; self.x._d") == ["_b", "_c", "_d"]
    assert private_names("setattr(x, '_e', 1); patch.object(x, 'y._f')") == ["_e", "_f"]
    assert private_names("self._g; cls._h; x.__class__; x._replace(); log('_i')") == []


def private_names_in(*folders: str) -> dict[str, set[str]]:
    """The private names of other objects that files use, by file; without those that use none."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    used = {name_of(path): {*private_names(path.read_text("utf-8"))} for path in paths}
    return {name: names for name, names in used.items() if names}


def test_tests_use_no_private_names() -> None:
    used = private_names_in("tests")
    assert used == {}, "test through public names, or pass the part to a constructor"


MAY_USE_PRIVATE_NAMES = {
    # Of other libraries, which have no public name for it.
    "src/roquet/model/config_check.py": {"_is_protocol"},
    "src/roquet/observe/stacks.py": {"_current_frames"},
    "src/roquet/integrations/faststream/broker.py": {"_serializer"},
    "src/roquet/lake/columns/body_schemas.py": {"_read_py"},
    "src/roquet/lake/kinds/iceberg/catalog.py": {"_client", "_get_hive_table"},
    "src/roquet/lake/kinds/iceberg/commits.py": {"_clean_all_uncommitted", "_snapshot_producers"},
    "src/roquet/testing/clock.py": {"_run"},
    "src/roquet/wire/records/speedups.py": {"_speedups"},  # the compiled half of this module
    # Of our own.
    "src/roquet/client/blocking.py": {
        "_config",
        "_finish",
        "_new_round_robin",
        "_run",
        "_send_in_turn",
    },  # of the clients whose twins it has
    "src/roquet/client/connection/loop_thread.py": {"_thread"},
    "src/roquet/client/pop.py": {"_end"},
    "src/roquet/client/reading/message.py": {"_is_settled", "_owner", "_record", "_retry"},
    "src/roquet/client/reading/ordered_reader.py": {"_hand_out_again", "_previous"},
    "src/roquet/client/sending/send_many.py": {"_deliver", "_has_failed", "_wake"},
    "src/roquet/client/transaction.py": {"_begin", "_end", "_end_quietly", "_prepared"},
    "src/roquet/net/channel.py": {"_doubt"},
    "src/roquet/net/connection/server_connection.py": {"_resume", "_schedule"},
    "src/roquet/spark/source/batch.py": {"_ranges"},
}
"""Files of the product and the simulation that use private names of other objects, and which."""


def test_the_product_and_the_simulation_use_no_private_names_but_these() -> None:
    assert private_names_in("src", "simulation") == MAY_USE_PRIVATE_NAMES


def test_no_modules_import_each_other_not_even_for_type_checkers() -> None:
    assert house.import_circles() == []


DOORS = {
    "src/roquet/cli/terminal/output.py": {"typer.echo"},
    "src/roquet/cli/terminal/printable_console.py": {"Console", "TextColumn"},
    "src/roquet/cli/messaging/dlq.py": {"typer.progressbar"},  # of a text that is ours
    "src/roquet/cli/demo/consumer_group.py": {"print"},  # JSON for the process that started it
    "src/roquet/cli/demo/pipeline.py": {"print"},
    "src/roquet/pictures/escaping.py": {"escape"},
}
"""Where text is escaped for terminals and pages, and what is used nowhere else to show it."""

SHOWING = {
    "print", "typer.echo", "typer.secho", "typer.confirm", "typer.prompt", "typer.progressbar",
    "Console", "TextColumn", "Text.from_markup", "sys.stdout.write", "sys.stderr.write", "escape",
}  # fmt: skip


def shown_by(path: Path) -> set[str]:
    """Calls of a file that show text."""
    nodes = [*ast.walk(house.tree_of(path))]
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    bases = (base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases)
    return SHOWING & {ast.unparse(node) for node in (*calls, *bases)}


def test_text_is_shown_through_one_door() -> None:
    packages = [PACKAGE / name for name in ("cli", "lab", "lake", "pictures", "spark")]
    shown = {name_of(path): shown_by(path) for folder in packages for path in folder.rglob("*.py")}
    assert {name: calls for name, calls in shown.items() if calls} == DOORS


MAY_SPLIT_AT_ANY_BLANK = {
    "src/roquet/dashboard/pages/access.py": "sources of a user, as people type them",
    "src/roquet/dashboard/pages/message_send.py": "hex digits, as people type them",
    "src/roquet/rules/access/patterns.py": "sources of a user, as people type them",
    "src/roquet/rules/quota.py": "quotas in a setting",
    "src/roquet/spark/offset_spec.py": "units of a time",
    "src/roquet/store/filesystem/libc.py": "the kernel's list of mounts",
}
"""Modules that split a text at any blank, and which: none is of a message."""

SPLITS_AT_ANY_BLANK = re.compile(r"\.split\(\)|split_whitespace|trim_whitespace")


def test_no_text_of_a_message_is_split_at_any_blank() -> None:
    """Keys are separated by U+0020 alone (`split_keys`); Python knows 29 other blanks."""
    found = {name_of(p) for p in MODULES if SPLITS_AT_ANY_BLANK.search(p.read_text("utf-8"))}
    assert found == set(MAY_SPLIT_AT_ANY_BLANK)


def every_call() -> set[type[Call[Any]]]:
    """Every request of the protocol: the calls that know their code."""
    for module in pkgutil.walk_packages(calls.__path__, "roquet.wire.calls."):
        importlib.import_module(module.name)
    found: set[type[Call[Any]]] = set()
    unseen: list[type[Call[Any]]] = [Call]
    while unseen:
        kinds: list[type[Call[Any]]] = unseen.pop().__subclasses__()
        unseen.extend(kinds)
        found.update(kind for kind in kinds if kind.__module__.startswith("roquet.wire.calls."))
    return {kind for kind in found if hasattr(kind, "code")}


def test_every_call_is_served_or_known_not_to_be() -> None:
    broker = importlib.import_module("roquet.broker.handlers")
    namesrv = importlib.import_module("roquet.namesrv.handlers")
    served, not_served = {*broker.HANDLERS, *namesrv.HANDLERS}, {*broker.NOT_SERVED}
    not_served |= {kind for kind in every_call() if kind.code in UNSERVED}
    assert {kind.__name__ for kind in every_call() - served - not_served} == set()
    assert {kind.__name__ for kind in served & not_served} == set()


def test_every_call_that_is_served_has_its_worst_requests() -> None:
    served = {kind.__name__ for kind in worst_requests.every_call()}
    worst = {kind.__name__ for kind in worst_requests.BODIES}
    assert served == worst | worst_requests.PLAIN, "worst_requests.py says what costs most"
    assert worst.isdisjoint(worst_requests.PLAIN)


def enums_of_the_wire() -> list[type[IntEnum]]:
    kinds = [kind for kind in vars(codes).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, IntEnum) and kind is not IntEnum]


def captured(kind: str) -> dict[str, int]:
    """The constants of one kind, as the genuine classes hold them."""
    lines = (ROOT / "tests" / "vectors" / "codes.jsonl").read_text("ascii").splitlines()
    rows = [(row["in"], row["out"]) for row in map(json.loads, lines)]
    return {given["name"]: out["code"] for given, out in rows if given["kind"] == kind}


@pytest.mark.parametrize("kind", enums_of_the_wire(), ids=lambda kind: kind.__name__)
def test_every_number_of_the_wire_is_the_genuine_one(kind: type[IntEnum]) -> None:
    name = kind.__name__
    genuine = captured(CAPTURED[name]) if name in CAPTURED else NOT_CAPTURED[name]
    ours = {member.name: member.value for member in kind}
    assert {n: value for n, value in ours.items() if genuine.get(n) != value} == {}


def test_locked_requirements_have_hashes_and_name_no_host() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text("ascii")
        assert not re.search(r"://|^--|/", text, re.MULTILINE), name_of(path)
        packages = re.findall(r"^[a-z0-9.-]+==[^ ]+.*\n(?:    --hash=sha256:)", text, re.MULTILINE)
        assert len(packages) == len(re.findall(r"^[^ #\n]", text, re.MULTILINE)) > 0


PROMISES = ROOT / "docs" / "topics" / "promises.md"


def kept_promises() -> dict[str, list[tuple[Path, str]]]:
    """Each promise of the page: the files and tests that hold it."""
    kept: dict[str, list[tuple[Path, str]]] = {}
    for line in PROMISES.read_text("utf-8").splitlines():
        if line.startswith("> "):
            tests = kept.setdefault(line[2:], [])
        elif link := re.match(r"- \[[^]]+\]\(([^)]+)\): (.*)", line):
            tests += [(PROMISES.parent / link[1], name) for name in re.findall(r"`(\w+)`", link[2])]
    return kept


def test_every_promise_has_a_test_that_holds_it() -> None:
    kept = kept_promises()
    assert len(kept) > 80
    assert [promise for promise, tests in kept.items() if not tests] == []


def test_the_architecture_names_every_family_of_promises() -> None:
    document = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    section = document.partition("## What is promised\n")[2].partition("\n## ")[0]
    families = re.findall(r"^## (.+)\n\n> ", PROMISES.read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"^- \[([^]]+)\]", section, re.MULTILINE) == families


def test_the_tests_that_hold_promises_are_there() -> None:
    named = [place for tests in kept_promises().values() for place in tests]
    gone = [
        f"{path.name}: {name}"
        for path, name in named
        if not path.exists() or f"def {name}(" not in path.read_text("utf-8")
    ]
    assert gone == []


def targets_of(recipe: str) -> set[str]:
    """The targets that a target of the Makefile comes to, itself among them."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    rules = dict(re.findall(r"^([a-z-]+):(.*(?:\n\t.*)*)", makefile, re.MULTILINE))
    reached: set[str] = set()
    waiting = [recipe]
    while waiting:
        target = waiting.pop()
        if target in rules and target not in reached:
            reached.add(target)
            head, _, steps = rules[target].partition("\n")
            waiting += head.partition("#")[0].split()
            waiting += re.findall(r"\$\((?:MAKE\) |call tried-twice,)([a-z-]+)", steps)
    return reached


def test_ci_runs_every_gate_that_contributing_names() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    gates = re.findall(r"^make ([a-z-]+) +#(?!.*by hand)", contributing, re.MULTILINE)
    assert len(gates) > 5
    assert set(gates) - targets_of("ci") == set()
    assert "make ci" in (ROOT / ".ci" / "run").read_text("utf-8")
