"""A library: arguments of a benchmark that measures works on two sides, in rounds."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

QUICK_SECONDS: Final = 3.0
"""Of a measurement, and of the load before the first one, with --quick."""


def parser_for(
    description: str, name: str, works: Sequence[str], *, seconds: float = 10, warm: float = 10
) -> argparse.ArgumentParser:
    """A parser to which a benchmark may add arguments of its own; `parse` reads them."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(works=works)
    parser.add_argument("--only", default=",".join(works), help=f"some of {','.join(works)}")
    parser.add_argument("--rounds", type=int, default=5, help="of which the medians count")
    parser.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    parser.add_argument("--warm", type=float, default=warm, help="seconds before: Java compiles")
    parser.add_argument("--quick", action="store_true", help="one short round, for a look")
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path(f"build/bench-{name}.json"))
    return parser


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> argparse.Namespace:
    """The arguments; `only` is a list of works, in the order of all."""
    given = parser.parse_args(arguments)
    only = given.only.split(",")
    if unknown := {*only} - {*given.works}:
        parser.error(f"--only: no such work: {', '.join(sorted(unknown))}")
    given.only = [work for work in given.works if work in only]
    if given.quick:
        given.rounds = 1
        given.seconds = min(given.seconds, QUICK_SECONDS)
        given.warm = min(given.warm, QUICK_SECONDS)
    return given
