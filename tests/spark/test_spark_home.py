"""A home for Spark whose Python processes import the installed PySpark."""

from pathlib import Path

import pytest

from roquet.spark import spark_home
from roquet.spark.spark_home import linked_home


def test_the_home_has_the_scripts_and_jars_but_no_archive(tmp_path: Path) -> None:
    home = linked_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    assert (home / "bin" / "spark-submit").exists()
    assert any((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) == home, "made once"
    assert linked_home({"HOME": str(tmp_path)}) == tmp_path / ".cache/roquet/spark" / home.name


def test_where_no_links_can_be_made_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "roquet").write_text("a file where the directory would be")
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_a_package_without_an_archive_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_home, "find_spec", lambda _: None)
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) is None
    monkeypatch.undo()
    monkeypatch.setattr(spark_home, "LEFT_OUT", "no-such-directory")
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) is None
