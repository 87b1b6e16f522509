"""Fuzzing: both forms of the inner loops are compared, and a difference is found and shown."""

import inspect
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import fuzz_speedups
from fuzz_inputs import CALLS, Case
from fuzz_speedups import FORMS, Difference, compare, main
from roquet.wire.records.speedups import COMPILED, extension

needs_compiled = pytest.mark.skipif(not COMPILED, reason="needs the compiled forms: make install")


class Planted:
    """An extension with one function."""

    def __init__(self, name: str, function: Any) -> None:
        setattr(self, name, function)


@pytest.mark.slow
@needs_compiled
def test_both_forms_agree_for_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "2", "--seed", "7"]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("seed 7: both forms agree\n")
    assert [line.split()[0] for line in printed.splitlines()[:-1]] == [*CALLS]


@needs_compiled
@pytest.mark.parametrize("name", CALLS)
def test_both_forms_agree_on_random_calls(name: str) -> None:
    random = Random(name)
    for _ in range(400):
        compare(name, CALLS[name](random))


@needs_compiled
def test_every_compiled_function_is_called() -> None:
    functions = {name for name, value in vars(extension).items() if callable(value)}
    public = {
        name
        for name in functions
        if not name.startswith("_") and not inspect.isclass(vars(extension)[name])
    }
    imported = {"crc32", "b2a_base64", "compare_digest"}
    assert public - imported - {"set_special"} == CALLS.keys() == FORMS.keys()


@needs_compiled
def test_another_answer_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        fuzz_speedups, "extension", Planted("plain_facts", lambda _: (1, True, b""))
    )
    monkeypatch.setattr(fuzz_speedups, "CALLS", {"plain_facts": CALLS["plain_facts"]})
    assert main(["--seconds", "1", "--seed", "5"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("seed 5: plain_facts(b")
    assert "compiled: value ((1, True, b''), [])\n" in printed


@needs_compiled
def test_an_error_of_one_form_alone_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: bytes) -> None:
        raise OverflowError

    monkeypatch.setattr(fuzz_speedups, "extension", Planted("plain_facts", fails))
    with pytest.raises(Difference, match="compiled: does not fit"):
        compare("plain_facts", Case((b"",)))


@needs_compiled
def test_a_call_may_be_left_to_the_python_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fuzz_speedups, "extension", Planted("plain_facts", lambda _: NotImplemented)
    )
    assert compare("plain_facts", Case((b"",))) == "left"


@needs_compiled
def test_a_reference_that_is_kept_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []

    def keep(entries: object) -> tuple[list[int], ...]:
        kept.append(entries)
        return [], [], []

    planted = Planted("entry_columns", keep)
    monkeypatch.setattr(fuzz_speedups, "extension", planted)
    with pytest.raises(Difference, match="entry_columns keeps references after value"):
        compare("entry_columns", Case((memoryview(b""),)))


@needs_compiled
def test_a_buffer_that_is_kept_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted("entry_columns", lambda entries: memoryview(entries))
    monkeypatch.setattr(fuzz_speedups, "extension", planted)
    with pytest.raises(BufferError):
        compare("entry_columns", Case((bytearray(20),)))


def test_without_compiled_forms_there_is_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz_speedups, "extension", None)
    assert main([]) == 0
    assert capsys.readouterr().out.startswith(
        "nothing was fuzzed: the inner loops are not compiled"
    )


@pytest.mark.parametrize("compiler", ["/nonexistent", "true", "echo"])
def test_without_the_sanitizer_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], compiler: str
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: f"{compiler} -pthread")
    assert main(["--sanitize"]) == 0
    assert capsys.readouterr().out.startswith("nothing was fuzzed: there is no C compiler with")


@pytest.mark.slow
def test_a_sanitized_copy_is_built_and_fuzzed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library = fuzz_speedups.sanitizer_library()
    if library is None or not COMPILED:
        pytest.skip("needs gcc with the address sanitizer")
    arguments: Sequence[str] = ["--seconds=1", "--seed=9"]
    assert fuzz_speedups.run_sanitized(library, arguments, tmp_path / "fuzz") == 0
    assert "seed 9: both forms agree" in capfd.readouterr().out
