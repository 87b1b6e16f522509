import ast

import pytest

import architecture_map
import broker_signals


@pytest.mark.parametrize(
    ("statement", "signals"),
    [
        ("a.on_change += [b.follow, partial(_c, d)]", ["a.on_change: b.follow", "a.on_change: c"]),
        ("a.seen |= {x: b.follow}", ["a.seen: b.follow"]),
        ("a.on_change.append(b.follow)", ["a.on_change: b.follow"]),
        ("a.check = b.fault", ["a.check: b.fault"]),
        ("s.subscribe(lambda config: b.set(config.x), 'x', 'y')", ["s: b.set (x, y)"]),
        ("if a:\n    a.before = B(c)", ["a.before: B"]),
        ("a, b = c, d", []),
    ],
)
def test_a_statement_says_which_parts_follow(statement: str, signals: list[str]) -> None:
    (node,) = ast.parse(statement).body
    assert [f"{signal}: {follower}" for signal, follower in broker_signals.signals(node)] == signals


def test_the_table_in_the_architecture_is_that_of_the_wiring() -> None:
    document = architecture_map.DOCUMENT.read_text("utf-8")
    assert broker_signals.drawn() in document, "`make map` redraws it"
