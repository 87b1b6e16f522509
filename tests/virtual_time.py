"""Coroutine tests in virtual time: a hook for conftest.py files, where most tests want it."""

import inspect

import pytest

from roquet.testing.clock import in_virtual_time


def pytest_pycollect_makeitem(collector: pytest.Module, name: str, obj: object) -> None:
    """Run a coroutine test in virtual time, unless it or its module is marked `real_time`."""
    if inspect.iscoroutinefunction(obj) and name.startswith("test_"):
        marks = [*collector.iter_markers(), *getattr(obj, "pytestmark", ())]
        if "real_time" not in {mark.name for mark in marks}:
            setattr(collector.obj, name, in_virtual_time(obj))
