"""Study: scenarios, strategies, number of histories and seed; and the directory of the results."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from roquet.lab.scenario import LabScenario
from roquet.model.errors import UsageError

PARTITION_ROWS: Final = 10_000
"""Rows of one file: seconds to a minute of work, and about a megabyte."""

PARTITIONS: Final = 8
"""Files of one part. An interrupted run loses one part at most. The number does not depend on the
cores, so that a study gives the same files on every machine."""

HISTORIES_MAX: Final = 100_000_000

STUDY_FILE: Final = "study.json"
SUMMARY_FILE: Final = "summary.json"
REPORT_FILE: Final = "report.html"
TABLE_DIRECTORY: Final = "histories"
WORK_DIRECTORY: Final = ".work"


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines the results."""

    scenarios: tuple[LabScenario, ...]
    strategies: tuple[str, ...]
    histories: int
    """Histories of each scenario."""
    seed: int

    @property
    def contests(self) -> int:
        """Rows of each history."""
        return len(self.scenarios) * len(self.strategies)

    def parts(self) -> Sequence[range]:
        """The numbers of the histories of each part."""
        size = self.partition_size * PARTITIONS
        return [
            range(first, min(first + size, self.histories))
            for first in range(0, self.histories, size)
        ]

    @property
    def partition_size(self) -> int:
        """Histories of one file."""
        return min(-(-self.histories // PARTITIONS), max(1, PARTITION_ROWS // self.contests))


def validated(study: Study) -> Study:
    """The study itself; UsageError when it is not valid."""
    if not 1 <= study.histories <= HISTORIES_MAX:
        raise UsageError(
            f"--histories: {study.histories:,} cannot be played: 1 to {HISTORIES_MAX:,}"
        )
    if not 0 <= study.seed < 2**63:
        raise UsageError(f"--seed: {study.seed} is not a whole number from 0 to 2^63")
    for what, names in (
        ("scenario", [scenario.name for scenario in study.scenarios]),
        ("strategy", study.strategies),
    ):
        if not names:
            raise UsageError(f"no {what} is given")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"the {what} {twice!r} is given twice")
    return study


class StudyDirectory:
    """The directory of one study."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.table = directory / TABLE_DIRECTORY
        self.work = directory / WORK_DIRECTORY
        self.summary = directory / SUMMARY_FILE
        self.report = directory / REPORT_FILE

    def claim(self, study: Study) -> None:
        """Create the directory, or continue in it; UsageError when it holds something else."""
        known = self.study()
        if known is None:
            if self.directory.exists() and (
                not self.directory.is_dir() or any(self.directory.iterdir())
            ):
                raise UsageError(
                    f"{self.directory} is not empty, and holds no study: choose another"
                )
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomically(
                self.directory / STUDY_FILE, msgspec.json.format(msgspec.json.encode(study))
            )
        elif known != study:
            raise UsageError(
                f"{self.directory} holds another study ({describe(known)}): choose another "
                "directory, or delete this one"
            )

    def study(self) -> Study | None:
        """The study of this directory; None when there is none."""
        try:
            return msgspec.json.decode((self.directory / STUDY_FILE).read_bytes(), type=Study)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{self.directory / STUDY_FILE} is not a study of this version: {error}"
            ) from error

    def clear(self) -> None:
        """Delete unfinished parts."""
        shutil.rmtree(self.work, ignore_errors=True)

    def part(self, number: int) -> Path:
        """The directory of a finished part."""
        return self.table / f"part={number:05d}"

    def missing(self, study: Study) -> list[int]:
        """The numbers of the parts that are not finished."""
        return [n for n in range(len(study.parts())) if not self.part(n).exists()]


def describe(study: Study) -> str:
    """The study in one line."""
    names = ", ".join(scenario.name for scenario in study.scenarios)
    return (
        f"{study.histories:,} histories of {names}; {', '.join(study.strategies)}; "
        f"seed {study.seed}"
    )


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that appears only once it is whole."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(data)
    draft.replace(path)
