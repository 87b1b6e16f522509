from pathlib import Path

import pytest
from tests.cli.running import invoke

from roquet.cli.demo import command
from roquet.model.errors import UsageError


def test_missing_packages_are_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "NEEDED", ("sys", "a_package_that_nobody_has"))
    with pytest.raises(
        UsageError, match=r"a_package_that_nobody_has.*pip install 'roquet\[demo\]'"
    ):
        command.demo()


@pytest.mark.parametrize(("succeeded", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_everything_added_up(
    monkeypatch: pytest.MonkeyPatch, succeeded: bool, code: int
) -> None:
    seen: list[tuple[Path, int | None, Path]] = []

    def run(directory: Path, count: int | None, html: Path) -> bool:
        assert directory.is_dir()
        seen.append((directory, count, html))
        return succeeded

    monkeypatch.setattr(command, "run_demo", run)
    result = invoke("demo", "--flights", "7", "--html", "x.html")
    assert result.exit_code == code
    ((directory, count, html),) = seen
    assert (count, html) == (7, Path("x.html"))
    assert not directory.exists(), "nothing is left behind"


def test_the_directory_of_keep_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "run_demo", lambda directory, *_: bool(directory / "x"))
    invoke("demo", "--keep", str(tmp_path))
    assert tmp_path.exists()


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker-a").mkdir()
    with pytest.raises(UsageError, match="is not empty"):
        command.demo(keep=tmp_path)
