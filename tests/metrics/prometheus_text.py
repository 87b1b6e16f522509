"""Reads a page of metrics in Prometheus' text format, strictly: as a scraper would."""

import re
from typing import NamedTuple

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LINE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
SUFFIXES = ("_bucket", "_count", "_sum")


class Value(NamedTuple):
    """One line of a page."""

    name: str
    labels: dict[str, str]
    value: float


class Page(NamedTuple):
    """A page: its values, and type and help by metric."""

    values: list[Value]
    types: dict[str, str]
    helps: dict[str, str]

    def of(self, name: str, **labels: str) -> list[float]:
        """Values with these labels, and perhaps others."""
        return [
            value.value
            for value in self.values
            if value.name == name and labels.items() <= value.labels.items()
        ]

    def one(self, name: str, **labels: str) -> float:
        (value,) = self.of(name, **labels)
        return value

    def labels(self, metric: str) -> set[frozenset[str]]:
        """Sets of label names of a metric, without the bound of a bucket."""
        names = {metric, *(metric + suffix for suffix in SUFFIXES)}
        return {frozenset(v.labels) - {"le"} for v in self.values if v.name in names}


def parsed(text: str) -> Page:
    """The page; an AssertionError for one that Prometheus would refuse."""
    page = Page([], {}, {})
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    done: set[str] = set()
    family = ""
    assert not text or text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            table = {"HELP": page.helps, "TYPE": page.types}[kind]
            assert name not in table, f"a second {kind} of {name}"
            table[name] = rest
        else:
            value = _value(line)
            key = (value.name, frozenset(value.labels.items()))
            assert key not in seen, f"twice: {line}"
            seen.add(key)
            page.values.append(value)
            name = _metric(value.name, page.types)
        if name != family:
            assert name not in done, f"{name} is in two places"
            done.add(family)
            family = name
    return page


def _value(line: str) -> Value:
    match = LINE.fullmatch(line)
    assert match is not None, line
    labels, at = {}, 0
    text = match[2] or ""
    while at < len(text):
        label = LABEL.match(text, at)
        assert label is not None, line
        assert label[1] not in labels, line
        labels[label[1]] = re.sub(r'\\[\\"n]', lambda m: ESCAPES[m[0]], label[2])
        at = label.end()
    return Value(match[1], labels, float(match[3]))


def _metric(name: str, types: dict[str, str]) -> str:
    """The metric that a line belongs to: buckets, count and sum are a histogram's."""
    for suffix in SUFFIXES:
        metric = name.removesuffix(suffix)
        if metric != name and types.get(metric) == "histogram":
            return metric
    return name
