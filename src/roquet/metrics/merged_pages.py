"""Merged pages: the metrics of several processes as one page, told apart by the label `process`.

    broker-a   │ x{topic="t"} 1.0          x{process="broker-a",topic="t"} 1.0
    broker-a-1 │ x{topic="t"} 2.0    ──▶   x{process="broker-a-1",topic="t"} 2.0

A master and its replicas have equal labels otherwise: their name is the same. Help and type stand
once, in front of the values of all processes, as the format asks for.
"""

from collections.abc import Iterator, Mapping

from roquet.metrics.text_format import escape_label

PROCESS_LABEL = "process"


def merged(pages: Mapping[str, str]) -> Iterator[str]:
    """The lines of one page from the pages of processes by name, with line ends.

    A line that is no value and no heading is left out.
    """
    headings: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    for process, page in pages.items():
        label = f'{PROCESS_LABEL}="{escape_label(process)}"'
        metric = ""
        for line in page.split("\n"):
            if line.startswith(("# HELP ", "# TYPE ")):
                metric = line.split(" ", 3)[2]
                _note(headings.setdefault(metric, []), line)
            elif line and not line.startswith("#"):
                name = line.partition("{")[0].partition(" ")[0]
                of = metric if metric and name.startswith(metric) else name
                values.setdefault(of, []).append(_labeled(line, label))
    for metric in sorted(values):
        yield from (f"{line}\n" for line in headings.get(metric, ()))
        yield from values[metric]


def _note(lines: list[str], line: str) -> None:
    """Add a heading unless there is one of its kind: HELP and TYPE stand once each."""
    if all(line[:7] != known[:7] for known in lines):
        lines.append(line)


def _labeled(line: str, label: str) -> str:
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{label},{rest}\n"
    name, _, value = line.partition(" ")
    return f"{name}{{{label}}} {value}\n"
