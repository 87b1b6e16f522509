"""Public names of the client: what users call, in both twins, and the types of what they give."""

import ast
import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

from roquet import client
from roquet.client import blocking

TWINS = [name for name in blocking.__all__ if getattr(blocking, name) is not getattr(client, name)]
CLASSES = [name for name in client.__all__ if inspect.isclass(getattr(client, name))]


def public_names(kind: object) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def types_in(hint: Any) -> Iterator[type]:
    """The classes that a type hint names."""
    if inspect.isclass(hint):
        yield hint
    for part in get_args(hint):
        for each in part if isinstance(part, list) else [part]:
            yield from types_in(each)


def test_programs_import_a_name_from_where_type_checkers_see_it() -> None:
    tree = ast.parse(inspect.getsource(client))
    seen = {
        alias.name: each.module
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert vars(client)["_MODULES"] == seen
    assert sorted(seen) == client.__all__


def test_names_are_completed_before_they_are_imported() -> None:
    assert set(client.__all__) < set(dir(client))
    with pytest.raises(AttributeError, match="no attribute 'Prodcer'"):
        getattr(client, "Prodcer")  # noqa: B009 # type checkers refuse it written out


def test_the_blocking_client_exports_the_names_of_the_asyncio_client() -> None:
    only_awaited = {"SendMany"}  # the blocking `send_many` returns a sequence
    assert set(blocking.__all__) == set(client.__all__) - only_awaited
    assert all(hasattr(blocking, name) for name in blocking.__all__)


@pytest.mark.parametrize("name", [name for name in TWINS if name != "MessageHandler"])
def test_a_blocking_twin_offers_what_the_asyncio_class_does(name: str) -> None:
    assert public_names(getattr(blocking, name)) == public_names(getattr(client, name))


def test_a_message_offers_to_settle_it_and_shows_what_it_is() -> None:
    methods = {
        name
        for name, _ in inspect.getmembers(client.PoppedMessage, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == {"ack", "nack", "dead_letter", "reply", "extend", "suspend"}


@pytest.mark.parametrize("name", CLASSES)
def test_methods_take_and_return_what_is_exported(name: str) -> None:
    unknown: set[str] = set()
    for method, function in inspect.getmembers(getattr(client, name)):
        whole = function.fget if isinstance(function, property) else function
        if not method.startswith("_") and inspect.isfunction(whole):
            unknown.update(
                each.__name__
                for hint in get_type_hints(whole).values()
                for each in types_in(hint)
                if each.__module__.startswith("roquet") and each.__name__ not in client.__all__
            )
    assert unknown == set()
