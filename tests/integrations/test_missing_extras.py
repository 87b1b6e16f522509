"""An adapter whose framework is missing says how to install it."""

import sys
from collections.abc import Iterator
from importlib import import_module

import pytest


@pytest.fixture(autouse=True)
def half_imported() -> Iterator[None]:
    """Forget the modules of an adapter that was imported in part."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("roquet.integrations."):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("adapter", "missing", "command"),
    [
        ("airflow.hook", "airflow", "'roquet[airflow]'"),
        ("airflow.sensors", "airflow", "'roquet[airflow]'"),
        ("airflow.triggers", "airflow", "'roquet[airflow]'"),
        ("celery", "celery", "'roquet[celery]'"),
        ("celery", "kombu", "'roquet[celery]'"),
        ("fastapi", "fastapi", "'roquet[fastapi]'"),
        ("faststream", "fast_depends", "'roquet[faststream]'"),
        ("faststream", "faststream", "'roquet[faststream]'"),
        ("faststream.fastapi", "fastapi", "'roquet[faststream,fastapi]'"),
        ("faststream.telemetry", "opentelemetry", "'roquet[faststream,tracing]' opentelemetry-sdk"),
        ("opentelemetry", "opentelemetry", "'roquet[tracing]' opentelemetry-distro"),
        ("structlog", "structlog", "'roquet[structlog]'"),
        ("taskiq", "taskiq", "'roquet[taskiq]'"),
    ],
)
def test_an_adapter_names_the_extra_that_it_needs(
    adapter: str, missing: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if adapter.startswith("faststream."):
        import_module("roquet.integrations.faststream")  # that is there
    ours = f"roquet.integrations.{adapter}"
    hidden = {"faststream.opentelemetry", "faststream._internal.fastapi"}
    for name in [*sys.modules]:
        if name in {ours, missing} or name.startswith((f"{ours}.", f"{missing}.", *hidden)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        import_module(ours)
    text = str(caught.value)
    assert text.startswith(missing)
    assert text.endswith(f" not installed: pip install {command}")


def test_a_module_of_ours_that_is_missing_is_no_missing_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "roquet.integrations.celery", raising=False)
    monkeypatch.setitem(sys.modules, "roquet.integrations.celery.control", None)
    with pytest.raises(ModuleNotFoundError, match="halted"):
        import_module("roquet.integrations.celery")
