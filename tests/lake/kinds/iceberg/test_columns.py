"""Body columns of an Iceberg table: added once, whoever else changes the table."""

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from roquet.lake.columns.body_columns import BodyField
from roquet.lake.columns.body_types import FIELD_TYPES
from roquet.lake.kinds.iceberg import columns
from roquet.lake.table import TableConflict
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from tests.lake.conftest import TableKind

ALL = tuple(BodyField(f"a_{name}", name) for name in FIELD_TYPES)


@pytest.fixture
def iceberg(kinds: "Callable[[str], TableKind]") -> "TableKind":
    return kinds("iceberg")


def test_every_type_is_found_again(iceberg: "TableKind") -> None:
    with iceberg.open(wanted=msgspec.structs.replace(iceberg.wanted, body_format="json")) as table:
        table.add_body_fields(ALL[:3])
        table.add_body_fields(ALL)
        table.add_body_fields(())
        assert table.body_fields() == ALL
        with pytest.raises(ConfigError, match=r"roquet\.orders has the column a_int int"):
            table.add_body_fields([BodyField("a_int", "string")])


def test_a_table_without_body_columns_has_none(iceberg: "TableKind") -> None:
    with iceberg.open() as table:
        assert table.body_fields() == ()


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException])
@pytest.mark.parametrize("is_made", [False, True])
def test_columns_are_added_once_whatever_becomes_of_the_answer(
    iceberg: "TableKind", monkeypatch: pytest.MonkeyPatch, error: type[Exception], is_made: bool
) -> None:
    iceberg.open().close()
    commit: Callable[..., Any] = SqlCatalog.commit_table
    calls = 0

    def fails_once(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            return commit(*args)
        if is_made:
            commit(*args)
        raise error("at the wrong moment")

    monkeypatch.setattr(SqlCatalog, "commit_table", fails_once)
    with closing(SqlCatalog("roquet", uri=f"sqlite:///{iceberg.root}/catalog.db")) as lake:
        table = lake.load_table("roquet.orders")
        columns.add_body_fields(table, ALL, "lake")
        assert columns.body_fields(lake.load_table("roquet.orders")) == ALL
    assert calls == 2 - is_made


def test_a_writer_that_is_always_too_late_adds_no_column(
    iceberg: "TableKind", monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.open().close()

    def refuse(*_: Any) -> Any:
        raise CommitFailedException("another came first")

    with closing(SqlCatalog("roquet", uri=f"sqlite:///{iceberg.root}/catalog.db")) as lake:
        table = lake.load_table("roquet.orders")
        monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
        with pytest.raises(TableConflict, match="no column was added"):
            columns.add_body_fields(table, ALL, "lake")
