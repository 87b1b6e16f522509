"""Versions that do not fit are refused, with both and with the command to install the right one."""

import importlib
import re
import sys
from pathlib import Path

import pyspark
import pytest
from msgspec.structs import replace
from pyspark import cloudpickle

from roquet import __version__
from roquet.spark import versions
from roquet.spark.versions import (
    Versions,
    find_spark,
    misfit_text,
    misfits,
    own_versions,
    parse_report,
    require_pyspark,
    require_spark,
    spark_home_paths,
    version_reporter,
)


def test_the_installed_version_is_supported() -> None:
    require_spark()
    require_spark("4.3.7")
    assert pyspark.__version__.startswith("4.3.")


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.2.9", "4.4.0", "4.30.0", "5.0"])
def test_any_other_version_is_an_error(version: str) -> None:
    text = f"needs pyspark 4.3, this is {version}: pip install 'roquet[spark]'"
    with pytest.raises(ImportError, match=re.escape(text)):
        require_spark(version)


def test_an_unsupported_spark_starts_without_the_source_and_a_log_line_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(versions, "PYSPARK_VERSION", (4, 9))
    monkeypatch.delitem(sys.modules, "pyspark_roquet", raising=False)
    package = importlib.import_module("pyspark_roquet")
    monkeypatch.delitem(sys.modules, "pyspark_roquet")
    assert not hasattr(package, "DefaultSource"), "an error would hide all other sources, too"
    assert "needs pyspark 4.9, this is 4.3" in caplog.text


def test_none_is_named_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ImportError, match="pip install"):
        require_spark()


def test_where_there_is_none_a_sentence_says_how_a_cluster_s_own_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(ImportError, match=r"roquet\[spark-client\]' and set SPARK_HOME to its dir"):
        require_pyspark()


def test_pyspark_of_spark_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python" / "lib").mkdir(parents=True)
    for name in ("py4j-0.10.8-src.zip", "py4j-0.10.9-src.zip", "pyspark.zip"):
        (tmp_path / "python" / "lib" / name).touch()
    found = iter([None, "a spec"])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: next(found))
    monkeypatch.setattr(sys, "path", ["elsewhere"])
    assert find_spark({"SPARK_HOME": str(tmp_path)})
    python = tmp_path / "python"
    assert sys.path == [str(python), str(python / "lib" / "py4j-0.10.9-src.zip"), "elsewhere"]


def test_a_directory_without_spark_adds_nothing(tmp_path: Path) -> None:
    assert spark_home_paths(tmp_path) == []


def test_an_installed_pyspark_comes_before_that_of_spark_home(tmp_path: Path) -> None:
    before = [*sys.path]
    assert find_spark({"SPARK_HOME": str(tmp_path)})
    assert sys.path == before


DRIVER = Versions(python="3.11", roquet=__version__, pyspark="4.3.0", pyarrow="26.0.1")
WORKER = replace(DRIVER, host="worker-1", executable="/opt/python")


def test_a_worker_s_report_is_parsed() -> None:
    own = own_versions()
    report = parse_report(version_reporter()(0))
    assert replace(report, host="", executable="") == own
    assert report.executable == sys.executable
    assert misfits(own, report) == []


def test_a_report_needs_no_roquet_in_the_worker() -> None:
    pickled = cloudpickle.dumps(version_reporter())  # type: ignore[no-untyped-call]
    assert b"version_reporter" in pickled, "its name, for traces"
    assert b"msgspec" not in pickled
    assert cloudpickle.loads(pickled)(0) == version_reporter()(0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"python": "3.12"}, "Python 3.12 and not 3.11"),
        ({"roquet": "0.0.9"}, f"roquet 0.0.9 and not {__version__}"),
        ({"roquet": None}, f"no roquet, which has to be {__version__}"),
        ({"pyspark": "4.2.1"}, "pyspark 4.2.1 and not 4.3.0"),
        ({"pyspark": None}, "no pyspark, which has to be 4.3.0"),
        ({"pyarrow": "14.0.2"}, "pyarrow 14.0.2 and not 20 or newer"),
        ({"pyarrow": None}, "no pyarrow, which has to be 20 or newer"),
    ],
)
def test_what_does_not_fit_is_named_with_both_versions(
    change: dict[str, str | None], text: str
) -> None:
    assert misfits(DRIVER, replace(WORKER, **change)) == [text]


@pytest.mark.parametrize("change", [{"pyspark": "4.3.9"}, {"pyarrow": "21.0.0"}, {}])
def test_what_works_together_fits(change: dict[str, str]) -> None:
    assert misfits(DRIVER, replace(WORKER, **change)) == []
    assert misfit_text(DRIVER, [replace(WORKER, **change)]) is None


def test_one_sentence_names_each_place_once_and_says_what_to_do() -> None:
    old = replace(WORKER, host="b", roquet="0.0.9", pyarrow="14.0.2")
    text = misfit_text(DRIVER, [old, WORKER, replace(old, host="a"), old])
    assert text == (
        "Spark's workers do not fit this driver: "
        f"a (/opt/python) has roquet 0.0.9 and not {__version__}, pyarrow 14.0.2 and not 20 or "
        f"newer; b (/opt/python) has roquet 0.0.9 and not {__version__}, pyarrow 14.0.2 and not 20 "
        f"or newer: install the driver's versions there (pip install "
        f"'roquet[spark-client]=={__version__}'), or bring its environment along (spark-submit "
        "--archives)"
    )
