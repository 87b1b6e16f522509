"""docs/reference: client, admin, testing, Spark options and errors, from signatures and docstrings.

python tools/generators/api_reference.py            prints the documents
python tools/generators/api_reference.py --write    writes them

Sources are read, not imported, but for defaults: the pages are the same whatever is installed.
"""

import argparse
import ast
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import groupby, pairwise
from pathlib import Path

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields as fields_of

from roquet.client import config
from roquet.spark.access_options import AccessOptions
from roquet.spark.options import SourceOptions
from roquet.spark.sink.options import SinkOptions

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "roquet"
REFERENCE = ROOT / "docs" / "reference"

GENERATED = "This page is generated: `make map` writes it anew.\n"

CLIENT = {
    "client/producer.py": ["Producer"],
    "client/transaction.py": ["TransactionProducer", "Transaction", "TransactionReceipt"],
    "client/sending/send_many.py": ["SendMany"],
    "client/consumer.py": ["Consumer", "RebalancedConsumer"],
    "client/push.py": ["PushConsumer"],
    "client/pull.py": ["PullConsumer"],
    "client/pop.py": ["PopConsumer"],
    "client/reading/message.py": ["ReceivedMessage"],
    "client/popping/pop_batch.py": ["PoppedMessage"],
    "client/sending/selectors.py": ["KeyHash", "Chance", "MachineRoom"],
    "client/sending/prepare.py": ["MessageFields"],
    "model/message.py": ["Message", "StoredMessage"],
    "model/queue.py": ["MessageQueue"],
    "model/results.py": ["SendReceipt", "SendStatus", "PullResult", "PullStatus", "ReplyMessage"],
    "net/tls.py": ["Tls"],
    "rules/health.py": ["ClientHealth", "ConsumerHealth", "StuckHandler"],
    "client/config.py": ["SpanProvider"],
}
FUNCTIONS = {
    "client/reading/handler_pool.py": "MessageHandler",
    "client/reading/message_batch.py": "BatchHandler",
    "client/config.py": "Selector",
    "rules/allocate/assignment.py": "Strategy",
    "client/rebalance/listeners.py": "RebalanceListener",
    "client/transaction_check.py": "TransactionCheck",
    "client/transaction.py": "LocalTransaction",
}
"""Types of the functions that users give, and where they are defined."""

SETTINGS = ["ClientConfig", "ProducerConfig", "ConsumerConfig"]

HOWTO = {
    "ProducerConfig": "[Send messages](../howto/send.md)",
    "ConsumerConfig": "[Consume messages](../howto/consume.md#settings-that-matter)",
    "Producer": "[Send messages](../howto/send.md)",
    "Producer.request": "[Ask, and wait for the answer](../howto/request-reply.md)",
    "Producer.recall": "[Take it back](../howto/delayed-messages.md#take-it-back)",
    "TransactionProducer": "[Send only if the work is done](../howto/transactions.md)",
    "Consumer": "[Consume messages](../howto/consume.md), [stop a consumer](../howto/shutdown.md)",
    "Consumer.run_batch": "[Many messages at a time](../howto/consume.md#many-messages-at-a-time)",
    "Consumer.pause": "[Stop for a while](../howto/seek-and-pause.md#stop-for-a-while)",
    "Consumer.seek": "[Go back, skip](../howto/seek-and-pause.md#read-from-another-place)",
    "RebalancedConsumer": "[Balance](../topics/balance.md)",
    "PushConsumer": "[Consume messages](../howto/consume.md), "
    "[several topics](../howto/several-topics.md), [broadcasting](../howto/broadcasting.md)",
    "PushConsumer.subscribe": "[Choose which messages come](../howto/filters.md)",
    "PullConsumer": "[Commit offsets yourself](../howto/manual-commit.md)",
    "PopConsumer": "[Push, pull or pop](../howto/choose-a-consumer.md)",
    "ReceivedMessage": "[What the handler says](../howto/consume.md#what-the-handler-says)",
    "ReceivedMessage.reply": "[Ask, and wait for the answer](../howto/request-reply.md)",
    "KeyHash": "[Choose the queue yourself](../howto/send.md#choose-the-queue-yourself)",
    "Message": "[Send messages](../howto/send.md)",
    "Tls": "[Clusters that ask who you are](../howto/secured-clusters.md#tls)",
}
"""Pages that tell more of a class or method of the client: the reference has its first paragraph,
and that of the other methods of such a class."""

ADMIN = [
    "client", "topics", "topic_list", "groups", "messages", "dead_letters", "offset_reset",
    "group_fork", "why_late", "resizing", "brokers", "cluster_health", "replicas", "controllers",
    "elect", "retire",
]  # fmt: skip

ADMIN_PLAIN = {"candidate", "parse_permission", "permission_text", "problems"}
"""Functions of `ADMIN` that users call without `await`; the others without are helpers."""

TESTING = {
    "testing/plugin.py": ["roquet_cluster", "roquet_session_cluster"],
    "testing/cluster.py": ["cluster", "Cluster", "BlockingCluster"],
    "testing/clock.py": ["VirtualClock", "run", "in_virtual_time", "this_loop"],
    "testing/strategies.py": None,
}

PLAIN_BASES = ("Struct", "Enum", "CheckedConfig", "Generic", "TypedDict", "Protocol")
"""Base classes that say nothing to readers."""

ADVICE = {
    "RoquetError": ("", "Catch it to catch everything below."),
    "ConfigError": ("yes", "Mend the setting that the text names."),
    "UsageError": ("yes", "Mend the call: the program is wrong, a retry changes nothing."),
    "NotFound": ("yes", "Mend the name: the text may suggest one."),
    "MessageIllegal": ("yes", "Mend the message: smaller, another tag or key, another property."),
    "CodecMissing": ("", "Install what it says; a consumer's message comes again until then."),
    "RecordError": ("", "Report it: a broker or a file gave bytes that are no message."),
    "BodyError": ("", "Look at `decode`, and at who sends this: `message.body` has the bytes."),
    "RemoteProtocolError": ("", "Look at the address: something else than a broker answers there."),
    "FieldError": ("", "Look at the versions of both sides: a reply lacks a field."),
    "StoreError": ("", "Of brokers only: do what the text says to the directory that it names."),
    "StoreFailed": ("", "Of brokers only: look at the disk, then restart the broker."),
    "StoreFull": ("yes", "Of brokers only: make room; clients get `CallRefused`."),
    "StoreLocked": ("yes", "Of brokers only: stop the other process, or give another directory."),
    "CallError": ("`error.definite`", "Ask `definite`; see below."),
    "CallRefused": (
        "`error.definite`",
        "Read `code` and `remark`; busy brokers are worth a retry.",
    ),
    "ConnectFailed": ("yes", "Try again later: nobody was there, or nothing was sent."),
    "ConnectionLost": ("no", "The message may be stored: send again and handle each once."),
    "CallTimeout": ("no", "The message may be stored: send again and handle each once."),
}
"""Whether nothing has happened for certain, and what to do."""

CLIENT_HEAD = """
`from roquet.client import …`; without async the same classes and methods are in
`roquet.client.blocking`, each call without `await`. Errors have [a page](errors.md).

All of it is typed, and pyright (Pylance) and mypy check it in their strict modes: misspelt settings
and fields, a handler of another consumer's message, a missing `await`.
`V` and `V_co` stand for the type of values: bytes, unless `encode` or `decode` makes
another one ([Send and receive values](../howto/typed-bodies.md)).

`pip install roquet` brings msgspec and nothing else. The client takes uvloop when it is there, and
lz4 and zstandard (`roquet[compression]`) for bodies that need them; zlib needs nothing.
"""

ADMIN_HEAD = """
Plain async functions over an `AdminClient`, which the command line calls, too.
"""

SPARK_HEAD = """
Names are read without regard to case. Times and sizes take a unit (`30s`, `64MiB`). How they are
used: [Read topics with Spark](../howto/spark-source.md), [SQL and dbt](../howto/sql-and-dbt.md),
[Stream topics](../howto/spark-streams.md), [Write to topics](../howto/spark-sink.md).
"""

ERRORS_HEAD = f"""\
# Errors

{GENERATED}
All are importable from `roquet.client` (and from `roquet.client.blocking`); those of brokers'
directories from `roquet.model.errors`. The text of an error names the thing and says what to do.

**Definite** means: the effect certainly did not happen, so a send may be repeated without fear of
storing the message twice. The client itself retries (`retry_times`) before it raises.

| error | is a | definite | meaning | what to do |
|---|---|---|---|---|
"""

ERRORS_TAIL = """
```python
from roquet.client import CallError, MessageIllegal, Producer


async def place(producer: Producer, order: bytes) -> bool:
    try:
        await producer.send("orders", order, keys="4711")
    except MessageIllegal:  # too large, or a wrong tag: it never will be sent
        raise
    except CallError as error:
        if error.definite:  # certainly not stored: try later, or tell the caller
            return False
        raise  # perhaps stored: sending again may double it, so consumers handle each key once
    return True
```
"""


def tree_of(path: str) -> ast.Module:
    """A module of ours, parsed."""
    return ast.parse((SOURCE / path).read_text("utf-8"))


def definitions(path: str) -> dict[str, ast.stmt]:
    """The classes and functions of a module by name."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name: node for node in tree_of(path).body if isinstance(node, kinds)}


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, bound: bool) -> str:
    """A function as it is called, with types and defaults."""
    arguments = node.args
    if bound:
        (arguments.posonlyargs or arguments.args)[:1] = []
    start = "await " if isinstance(node, ast.AsyncFunctionDef) and not is_generator(node) else ""
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{start}{name}({ast.unparse(arguments)}){result}"


def is_generator(node: ast.AST) -> bool:
    """Whether a function yields."""
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))


def decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names of a function's decorators."""
    return {ast.unparse(one).partition("(")[0] for one in node.decorator_list}


def text_of(node: ast.AST) -> str:
    """A docstring as Markdown: what is indented is code."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    out: list[str] = []
    lines = (ast.get_docstring(node) or "").splitlines()
    for is_code, run in groupby(lines, _Indented()):
        text = "\n".join(run).strip("\n")
        out.append(block(textwrap.dedent(text)) if is_code else text)
    return "\n\n".join(part for part in out if part)


class _Indented:
    """Whether lines are indented; a blank one is what the line before it is."""

    def __init__(self) -> None:
        self._last = False

    def __call__(self, line: str) -> bool:
        self._last = line.startswith("    ") if line else self._last
        return self._last


def block(text: str) -> str:
    """A block of Python, or of text where it is a fragment."""
    try:
        compile(text, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return f"```text\n{text}\n```"
    return f"```python\n{text}\n```"


def fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of the fields of a value."""
    for field, after in pairwise([*node.body, ast.Pass()]):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name, kind = field.target.id, ast.unparse(field.annotation)
        if not name.startswith("_") and not kind.startswith("ClassVar"):
            default = "" if field.value is None else ast.unparse(field.value)
            yield name, kind, default, documented(after)


def worth(default: str) -> str:
    """A default of the client's settings; of a constant its value, since its name tells nobody."""
    value = getattr(config, default, None) if default.isidentifier() and default.isupper() else None
    return repr(value) if isinstance(value, int | str) else default


def documented(node: ast.stmt) -> str:
    """The text below a field, in one line."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def table(head: str, rows: Iterator[tuple[str, ...]]) -> str:
    """A Markdown table; nothing without rows."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    rule = "|" + "---|" * (head.count("|") - 1)
    return "\n".join(["", head, rule, *lines, ""]) if lines else ""


def code(text: str) -> str:
    """Text as code, if there is any."""
    return f"`{text}`" if text else ""


def first_paragraph(node: ast.AST) -> str:
    """The beginning of a docstring, in one line."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())


def linked(text: str, name: str) -> str:
    """A text with the page that tells more, if there is one."""
    return f"{text} More: {HOWTO[name]}." if name in HOWTO else text


def client_class(node: ast.ClassDef) -> str:
    """A class of the client: a line or two for each method."""
    is_told = node.name in HOWTO
    shown = class_head(node, linked(first_paragraph(node), node.name) if is_told else text_of(node))
    overloads: list[str] = []
    for method in methods_of(node):
        if "overload" in decorators(method):
            overloads.append(signature(method, method.name, bound=True))
        elif not method.name.startswith("_"):
            shown += f"\n- {method_line(method, overloads, node.name)}"
            overloads = []
    return shown.rstrip("\n") + "\n"


def method_line(
    node: ast.FunctionDef | ast.AsyncFunctionDef, overloads: list[str], owner: str
) -> str:
    """A method or property in one line: how it is called, and what it does."""
    name = f"{owner}.{node.name}"
    is_told = owner in HOWTO or name in HOWTO
    whole = " ".join((ast.get_docstring(node) or "").split())
    text = linked(first_paragraph(node) if is_told else whole, name)
    if "property" in decorators(node):
        kind = ast.unparse(node.returns) if node.returns else ""
        return f"{code(f'{node.name}: {kind}')} - {text}"
    forms = overloads or [signature(node, node.name, bound=True)]
    return f"{', '.join(map(code, forms))} - {text}"


def methods_of(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a class."""
    return [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def class_page(node: ast.ClassDef) -> str:
    """A class: how it is made, its fields, its methods."""
    shown, overloads = class_head(node, text_of(node)), list[str]()
    for method in methods_of(node):
        if "overload" in decorators(method):
            overloads.append(signature(method, method.name, bound=True))
        elif not method.name.startswith("_"):
            shown += method_text(method, overloads)
            overloads = []
    return shown


def class_head(node: ast.ClassDef, text: str) -> str:
    """How a class is made, what it is, and its fields."""
    made = next((one for one in methods_of(node) if one.name == "__init__"), None)
    head = signature(made, node.name, bound=True) if made else node.name
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    shown = f"\n### {node.name}\n\n```text\n{head.removesuffix(' -> None')}\n```\n\n"
    shown += text + "\n"
    if bases and not any(one in bases for one in PLAIN_BASES):
        shown += f"\nIt is a {code(bases)}.\n"
    values = ((code(n), code(k), code(d), text) for n, k, d, text in fields(node))
    return shown + table("| field | type | default | meaning |", values)


def method_text(node: ast.FunctionDef | ast.AsyncFunctionDef, overloads: list[str]) -> str:
    """A method, as each of its overloads if it has any; or a property."""
    if "property" in decorators(node):
        result = ast.unparse(node.returns) if node.returns else ""
        return f"\n#### {node.name}: {code(result)}\n\n{text_of(node)}\n"
    if any(name.endswith(".setter") for name in decorators(node)):
        return ""
    shown = "\n".join(overloads or [signature(node, node.name, bound=True)])
    return f"\n#### {node.name}\n\n```text\n{shown}\n```\n\n{text_of(node)}\n"


def function_page(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A function, or a fixture."""
    if "pytest.fixture" in decorators(node):
        return f"\n### {node.name}\n\nA pytest fixture. {text_of(node)}\n"
    shown = signature(node, node.name, bound=False)
    return f"\n### {node.name}\n\n```text\n{shown}\n```\n\n{text_of(node)}\n"


def is_for_operators(node: ast.stmt) -> bool:
    """Whether a class or function of the admin package is for users: no helper of others."""
    kinds = ast.ClassDef | ast.AsyncFunctionDef
    return isinstance(node, kinds) or getattr(node, "name", "") in ADMIN_PLAIN


def page_of(
    path: str, names: list[str] | None, draw: Callable[[ast.ClassDef], str] = class_page
) -> str:
    """Some of a module's classes and functions; all public ones for None."""
    found = definitions(path)
    chosen = [n for n in found if not n.startswith("_")] if names is None else names
    shown = ""
    for name in chosen:
        node = found[name]
        if isinstance(node, ast.ClassDef):
            shown += draw(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            shown += function_page(node)
    return shown


def constants(path: str) -> dict[str, tuple[str, str]]:
    """Values and meanings of a module's constants."""
    found = {}
    for node, after in pairwise([*tree_of(path).body, ast.Pass()]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = ast.unparse(node.value), documented(after)
    return found


def client() -> str:
    """The client library's page."""
    shown = f"# The client\n\n{GENERATED}{CLIENT_HEAD}"
    shown += "\n## Settings\n"
    found = definitions("client/config.py")
    for name in SETTINGS:
        node = found[name]
        assert isinstance(node, ast.ClassDef)
        values = ((code(n), code(k), code(worth(d)), text) for n, k, d, text in fields(node))
        shown += f"\n### {name}\n\n{linked(text_of(node), name)}\n"
        shown += table("| setting | type | default | meaning |", values)
    shown += "\n## Classes\n"
    shown += "".join(page_of(path, names, client_class) for path, names in CLIENT.items())
    shown += "\n## Functions that you give\n"
    for path, name in FUNCTIONS.items():
        kind, text = constants(path)[name]
        shown += f"\n### {name}\n\n```text\n{kind}\n```\n\n{text}\n"
    return shown


def admin() -> str:
    """The page of what operators ask."""
    shown = f"# Admin\n\n{GENERATED}{ADMIN_HEAD}"
    for module in ADMIN:
        path = f"admin/{module}.py"
        first = (ast.get_docstring(tree_of(path)) or "").splitlines()[0]
        public = {n: node for n, node in definitions(path).items() if not n.startswith("_")}
        names = [n for n, node in public.items() if n != "outcomes" and is_for_operators(node)]
        shown += f"\n## roquet.admin.{module}\n\n{first}\n" + page_of(path, names)
    return shown


def testing() -> str:
    """The page of what tests may use."""
    shown = f"# Testing\n\n{GENERATED}"
    for path, names in TESTING.items():
        tree = tree_of(path)
        first = (ast.get_docstring(tree) or "").splitlines()[0]
        module = path.removesuffix(".py").replace("/", ".")
        shown += f"\n## roquet.{module}\n\n{first}\n" + page_of(path, names)
    return shown


def readers(path: str) -> Iterator[tuple[str, str]]:
    """Option and field of each option that a module reads."""
    for node in tree_of(path).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_READERS":
            assert isinstance(node.value, ast.Call)
            (read,) = node.value.args
            assert isinstance(read, ast.Dict)
            for key, value in zip(read.keys, read.values, strict=True):
                assert isinstance(key, ast.Constant)
                assert isinstance(value, ast.Tuple)
                yield str(key.value), ast.literal_eval(value.elts[0])


def option_rows(path: str, kind: type[Struct]) -> Iterator[tuple[str, ...]]:
    """Option, default as one would write it, and meaning."""
    node, defaults = definitions(path)[kind.__name__], {f.name: f.default for f in fields_of(kind)}
    assert isinstance(node, ast.ClassDef)
    told = {field: text for field, _, _, text in fields(node)}
    for option, field in readers(path):  # a second option of a field has no default of its own
        default = INVERTED.get(field) or option_text(field, defaults.pop(field, None))
        yield code(option), code(default), told[field]


INVERTED = {"ignores_others": "error", "accepts_less_durable": "retry"}
"""Defaults of options whose field says whether the other value was given."""


def option_text(field: str, value: object) -> str:
    """The value of an option's field as text; empty for none."""
    if value is NODEFAULT or value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, Enum):
        return str(value.value)
    if field.endswith("_ms") and isinstance(value, int):
        return f"{value // 60_000}m" if value % 60_000 == 0 else f"{value // 1000}s"
    if "bytes" in field and isinstance(value, int):
        return f"{value // 2**20}MiB"
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_options() -> str:
    """The page of Spark's options."""
    shown = f"# Spark options\n\n{GENERATED}{SPARK_HEAD}"
    head = "| option | default | meaning |"
    shown += "\n## Reads and streams\n" + table(
        head, option_rows("spark/options.py", SourceOptions)
    )
    shown += "\n## Writes\n" + table(head, option_rows("spark/sink/options.py", SinkOptions))
    access = option_rows("spark/access_options.py", AccessOptions)
    return shown + "\n## Signatures and TLS, of reads and writes\n" + table(head, access)


def errors() -> str:
    """The page of errors."""
    shown = ERRORS_HEAD
    for name, node in definitions("model/errors.py").items():
        assert isinstance(node, ast.ClassDef)
        definite, advice = ADVICE[name]
        meaning = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
        base = code(ast.unparse(node.bases[0]))
        shown += f"| `{name}` | {base} | {definite} | {meaning} | {advice} |\n"
    return shown + ERRORS_TAIL


PAGES = {
    "client.md": client,
    "admin.md": admin,
    "testing.md": testing,
    "spark-options.md": spark_options,
    "errors.md": errors,
}


def main() -> None:
    """Print the documents, or write them into their place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into their place, not printed")
    is_writing = parser.parse_args().write
    for name, draw in PAGES.items():
        if is_writing:
            (REFERENCE / name).write_text(draw(), "utf-8")
        else:
            print(draw())


if __name__ == "__main__":
    main()
