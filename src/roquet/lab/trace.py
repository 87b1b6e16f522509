"""Trace: the key frequencies and the hourly rhythm of a zipped CSV table."""

import zipfile
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from roquet.lab.scenario import LabScenario
from roquet.model.errors import UsageError


def with_trace(scenario: LabScenario, path: Path, *, key: str, hour: str) -> LabScenario:
    """The scenario with the key weights of one column of a table, and the rhythm of another."""
    table = _columns(path, key, hour)
    keys = pc.value_counts(table[key].drop_null())
    hours = pc.value_counts(table[hour].drop_null())
    weights = sorted(keys.field("counts").to_pylist(), reverse=True)
    by_hour = sorted(zip(hours.field("values").to_pylist(), hours.field("counts").to_pylist(),
                         strict=True))  # fmt: skip
    return msgspec.structs.replace(
        scenario, key_weights=tuple(weights), rhythm=tuple(float(count) for _, count in by_hour)
    )


def _columns(path: Path, *names: str) -> pa.Table:
    options = csv.ConvertOptions(
        include_columns=list(names), null_values=["NA", ""], strings_can_be_null=True
    )
    try:
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
            return csv.read_csv(raw, convert_options=options)
    except (OSError, zipfile.BadZipFile, pa.ArrowInvalid, KeyError) as error:
        raise UsageError(f"{path} has no columns {' and '.join(names)}: {error}") from error
