"""Kill rounds: which faults a few rounds hold."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
CI_ROUNDS = 5


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The module; what it imports from its own folder is gone afterwards."""
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    before = set(sys.modules)
    yield runpy.run_path(str(BENCH / "kill_faults.py"))
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{BENCH}/"):
            del sys.modules[name]


def test_a_few_rounds_have_kills_and_cuts_of_each_sort(faults: dict[str, Any]) -> None:
    first = faults["kinds"](has_etcd=True)[:CI_ROUNDS]
    wanted = {"kill master", "cut replicas", "cut controller", "cut one way", "kill etcd"}
    assert set(first) == wanted


def test_without_etcd_its_rounds_are_others(faults: dict[str, Any]) -> None:
    names = faults["kinds"](has_etcd=False)
    assert not [name for name in names if "etcd" in name]
    assert set(names[:CI_ROUNDS]) == {
        "kill master", "cut replicas", "cut controller", "cut one way", "freeze master",
    }  # fmt: skip
