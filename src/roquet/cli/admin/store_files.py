"""roquet dump, check: prints any store file as text; checks a store directory."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.operator_command import Result
from roquet.cli.terminal import output
from roquet.model.printable_text import printable

if TYPE_CHECKING:
    from roquet.store.check import StoreReport
    from roquet.store.config import StoreConfig

TEXT_MAX: Final = 160
"""Characters of one value in text output; `--json` cuts nothing."""

StoreJsonOption = Annotated[bool, typer.Option("--json", help="JSON, with nothing cut.")]
StoreConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The broker.conf, when it sets sizes of files."),
]


def dump(
    file: Annotated[Path, typer.Argument(help="A log, queue, index, checkpoint or table file.")],
    *,
    json: StoreJsonOption = False,
    config: StoreConfigOption = None,
) -> None:
    """Print the contents of a store file, one entry a line. The file is not changed."""
    from roquet.store import dump as store_dump

    for values in store_dump.dump_file(file, config=_layout(config)):
        if json:
            output.echo_json([values])
        elif values["kind"] == "table":
            output.echo_lines(output.json_text(values["content"], pretty=True))
        else:
            output.echo(_as_text(values))


def check(
    directory: Annotated[Path, typer.Argument(help="A data directory that no broker is using.")],
    *,
    json: StoreJsonOption = False,  # noqa: ARG001 - the result is printed so
    config: StoreConfigOption = None,
) -> Result:
    """Check a data directory for damage. Nothing is changed; exit code 1 when it is damaged."""
    import msgspec

    from roquet.admin.directory_check import check_directory

    report = check_directory(directory, _layout(config))
    return Result(
        json=[{"verdict": report.verdict, **msgspec.to_builtins(report)}],
        text=_report_lines(report),
        is_failed=report.verdict == "damaged",
    )


def _layout(config: Path | None) -> "StoreConfig | None":
    """The store settings of a broker.conf; None without one."""
    if config is None:
        return None
    from roquet.broker.settings.config_file import load
    from roquet.broker.settings.store_settings import store_config

    return store_config(load(config, os.environ))


def _report_lines(report: "StoreReport") -> Iterator[str]:
    """A report as lines of text."""
    yield f"{report.directory}: {report.verdict}"
    yield (
        f"  {report.records:,} records in {report.queues:,} queues, "
        f"positions {report.begin:,} to {report.end:,}; "
        f"{'closed in good order' if report.is_closed else 'not closed'}"
    )
    for damage in report.damage:
        yield f"  unreadable: {damage}"
    for problem in report.problems:
        yield f"  wrong: {problem}"
    for pending in report.pending:
        yield f"  mended at the next start: {pending}"


def _as_text(values: Mapping[str, Any]) -> str:
    """The kind, and name=value for every value."""
    rest = (f"{name}={_short(value)}" for name, value in values.items() if name != "kind")
    return " ".join([str(values["kind"]), *rest])


def _short(value: object) -> str:
    text = output.json_text(value) if isinstance(value, dict) else printable(str(value))
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"
