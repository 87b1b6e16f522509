"""Body inference: the fields of JSON bodies and their types, from a sample of each batch.

    {"id": 7, "price": 1.5, "tags": ["a"]}     id bigint, price double, tags string

Numbers with and without a fraction are double, objects and arrays string, and so are fields of
different types. A field that is null in the whole sample has no type yet, and no column.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import OffsetRange
from roquet.spark.source.tasks import ReadTask, read_task
from roquet.spark.tables.body_columns import FIELDS_MAX, BodyField, column_of, may_be_column

SAMPLE_MAX: Final = 1_000
"""Bodies of a batch that are looked at."""

SAMPLED_TASKS_MAX: Final = 16
"""Tasks of a batch whose first and last bodies are looked at; each costs some requests."""

_INT64: Final = range(-(2**63), 2**63)


def infer_fields(
    bodies: Iterable[bytes], known: Sequence[BodyField] = (), prefix: str = ""
) -> list[BodyField]:
    """Fields of the bodies that are not among the known ones, in the order of their first use.

    Columns are named after them with the prefix. Bodies that are no JSON objects are passed over,
    and so are names that no column can have.
    """
    taken = {field.name.lower() for field in known}
    sources = {field.source.lower() for field in known}
    types, spelled = dict[str, str](), dict[str, str]()
    for body in bodies:
        for name, value in _items(body):
            if value is None or name.lower() in sources:
                continue
            column = f"{prefix}{name}"
            if not may_be_column(column) or column.lower() in taken:
                continue
            if spelled.setdefault(name.lower(), name) != name:
                continue  # another field's name but for the case: it stays in the body
            kind = _type_of(value)
            types[name] = _common(types.get(name, kind), kind)
    room = FIELDS_MAX - len(known)
    return [column_of(name, kind, prefix) for name, kind in list(types.items())[:room]]


def sample_bodies(settings: SourceOptions, tasks: Sequence[ReadTask]) -> Iterator[bytes]:
    """The first and the last bodies of some tasks of a batch, spread over all of them."""
    step = -(-len(tasks) // SAMPLED_TASKS_MAX)
    chosen = tasks[:: step or 1]
    for task in chosen:
        count = -(-SAMPLE_MAX // len(chosen))
        rows = sum(map(len, task.value))
        if rows <= count:
            yield from _first_bodies(settings, task, count)
            continue
        yield from _first_bodies(settings, task, -(-count // 2))
        end = ReadTask(last_ranges(task.value, count // 2), task.addresses, task.replicas)
        yield from _first_bodies(settings, end, count // 2)


def last_ranges(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """The ends of ranges, with so many offsets in all; each has about the same part of them."""
    part = -(-count // max(1, len(ranges)))
    ends = [each.cut(max(each.start, each.end - part), each.end) for each in ranges]
    return [each for each in ends if len(each)]


def _first_bodies(settings: SourceOptions, task: ReadTask, count: int) -> Iterator[bytes]:
    for batch in read_task(settings, ("body",), task):
        bodies = batch.column("body").slice(0, count).to_pylist()
        yield from (body for body in bodies if body is not None)
        count -= len(bodies)
        if count <= 0:
            return


def _items(body: bytes) -> Iterable[tuple[str, Any]]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ()
    return value.items() if isinstance(value, dict) else ()


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if value in _INT64 else "string"
    return "double" if isinstance(value, float) else "string"


def _common(one: str, other: str) -> str:
    if one == other:
        return one
    return "double" if {one, other} == {"bigint", "double"} else "string"
