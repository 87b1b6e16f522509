"""Values and errors of the public packages: each can be pickled and copied."""

import copy
import enum
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue

PACKAGES: Final = ("model", "client", "admin", "lake", "spark", "testing")
"""Packages that users import from."""

HANDED_ON: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda value: pickle.loads(pickle.dumps(value)),
    copy.copy,
    copy.deepcopy,
)

PLAIN: Final[Mapping[Any, Any]] = {
    int: 7, float: 0.5, str: "text", bytes: b"bytes", bool: True, object: "any", Any: "any",
    type(None): None, datetime: datetime(2026, 1, 31, tzinfo=UTC), timedelta: timedelta(1),
    Path: Path("path"), Exception: RoquetError("text"),
}  # fmt: skip


CONTAINERS: Final[Mapping[type, Callable[[type, list[Any]], Any]]] = {
    enum.Enum: lambda kind, _: next(iter(kind), 0),  # type: ignore[call-overload]
    tuple: lambda _, parts: tuple(parts),
    Counter: lambda _, parts: Counter(parts),
    Mapping: lambda _, parts: dict([parts]),
    AbstractSet: lambda _, parts: frozenset(parts),
    Sequence: lambda _, parts: parts,
}


def is_value(kind: type) -> bool:
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return issubclass(kind, msgspec.Struct) or is_dataclass(kind) or is_named_tuple


def value_classes() -> Iterator[type]:
    """Public classes of values, of all modules of the packages."""
    for package in PACKAGES:
        root = importlib.import_module(f"roquet.{package}")
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            module = importlib.import_module(found.name)
            for name, kind in vars(module).items():
                is_own = isinstance(kind, type) and kind.__module__ == module.__name__
                if is_own and is_value(kind) and not name.startswith("_"):
                    yield kind


def error_classes(kind: type[BaseException] = RoquetError) -> Iterator[type[BaseException]]:
    yield kind
    for each in kind.__subclasses__():
        yield from error_classes(each)


def example(hint: Any, deep: int = 0) -> Any:
    """A value of a type. Raises LookupError for one that holds arrays or parts of a process."""
    arguments, base = typing.get_args(hint), typing.get_origin(hint) or hint
    if base in (typing.Union, types.UnionType, typing.Annotated):
        return example(next(a for a in arguments if a is not type(None)), deep)
    if base is typing.Literal or base in PLAIN:
        return arguments[0] if arguments else PLAIN[base]
    if isinstance(base, type) and (is_value(base) or issubclass(base, RoquetError)):
        return made(base, deep + 1)
    for kind, build in CONTAINERS.items():
        if isinstance(base, type) and issubclass(base, kind):
            return build(base, [example(a, deep) for a in arguments if a is not Ellipsis])
    raise LookupError(hint)


def made(kind: type, deep: int = 0) -> Any:
    """An instance with all its fields set, but for those that have a default and no example."""
    if issubclass(kind, Exception) and kind.__init__ is Exception.__init__:
        return kind("text")
    if deep > 4:
        raise LookupError(kind)
    try:
        return with_fields(kind, deep)
    except (RoquetError, NameError):  # examples that are no settings, types of checkers alone
        with suppress(TypeError):
            return kind()
        raise LookupError(kind) from None


def with_fields(kind: type, deep: int) -> Any:
    hints = typing.get_type_hints(
        kind if is_value(kind) else inspect.getattr_static(kind, "__init__")
    )
    positional, named = [], {}
    for field in inspect.signature(kind).parameters.values():
        try:
            value = example(hints[field.name], deep)
        except LookupError:
            if field.default is field.empty:
                raise
            value = field.default
        if field.kind is field.KEYWORD_ONLY:
            named[field.name] = value
        else:
            positional.append(value)
    return kind(*positional, **named)


@pytest.mark.parametrize("hand_on", HANDED_ON, ids=["pickle", "copy", "deepcopy"])
def test_every_public_value_can_be_handed_to_another_process_and_copied(
    hand_on: Callable[[Any], Any],
) -> None:
    passed, unmade, failed = 0, set[str](), dict[type, Exception]()
    for kind in value_classes():
        try:
            value = made(kind)
        except LookupError:
            unmade.add(kind.__qualname__)
            continue
        try:
            hand_on(value)
            passed += 1
        except Exception as error:
            failed[kind] = error
    assert failed == {}
    assert passed > 7 * len(unmade), f"too many without an example: {unmade}"


@pytest.mark.parametrize("hand_on", HANDED_ON, ids=["pickle", "copy", "deepcopy"])
def test_every_error_can_be_handed_to_another_process_and_copied(
    hand_on: Callable[[Any], Any],
) -> None:
    list(value_classes())  # their modules define errors
    for kind in dict.fromkeys(error_classes()):
        try:
            error = made(kind)
        except LookupError:  # it holds parts of a broker, and stays in it
            continue
        error.add_note("a note")
        again = hand_on(error)
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


def test_a_message_is_the_same_in_another_process() -> None:
    for message in (Message("t", b"body"), Message("t", b"", properties={"a": "b"}, keys=("k",))):
        for hand_on in HANDED_ON:
            assert hand_on(message) == message
    with pytest.raises(TypeError):
        copy.deepcopy(Message("t", b"")).properties["a"] = "b"  # type: ignore[index]


def refuse(_: int) -> None:
    raise CallRefused(17, "no such topic", definite=False)


def test_a_refusal_in_a_pool_of_processes_reaches_its_caller() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        refusal = pool.map_async(refuse, [1])
        with pytest.raises(CallRefused, match="code 17: no such topic") as raised:
            refusal.get(timeout=60)
    assert (raised.value.code, raised.value.definite) == (17, False)


def test_a_received_message_says_why_it_cannot_be_handed_on() -> None:
    from tests.client.reading.test_message import RecordingOwner, received

    message = received(RecordingOwner())
    assert message.queue == MessageQueue("t", "a", 3)
    for hand_on in HANDED_ON:
        with pytest.raises(UsageError, match="belongs to its consumer"):
            hand_on(message)
