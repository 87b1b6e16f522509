"""The comparison in a terminal."""

import io
from typing import Any

from rich.console import Console

from roquet.cli.balance.compare import compare, strategy_names
from roquet.cli.balance.screen import show
from roquet.cli.balance.situation import MemberChange, build_situation


def screen_of(
    strategy: str = "all", *, colour: bool = False, width: int = 80, **changes: Any
) -> str:
    situation = build_situation(**changes)
    text = io.StringIO()
    console = Console(
        file=text,
        width=width,
        highlight=False,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
    )
    show(situation, compare(situation, strategy_names(strategy)), console)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def test_the_documented_example_fits_a_narrow_terminal() -> None:
    text = screen_of(then=MemberChange.JOIN)
    assert "AVG                       1  1  1  2  2  2  3  3" in text
    assert "  1  1 *2  2 *3 *3 *4 *4       2      5      2" in text
    flat = " ".join(text.split())
    assert "AVG moves 5, AVG_BY_CIRCLE 5," in flat
    assert "STICKY 2, LAG_WEIGHTED 2; 2 is the least." in flat
    assert max(map(len, text.splitlines())) <= 80


def test_owners_have_their_colours() -> None:
    text = screen_of("AVG", colour=True)
    assert "\x1b[1;38;2;255;255;255;48;2;47;111;222m" in text


def test_a_quiet_group_has_neither_moves_nor_notes() -> None:
    assert screen_of("AVG") == (
        "8 queues on 1 broker, 3 members\n"
        " c1   c2   c3\n"
        "\n"
        "strategy   0  1  2  3  4  5  6  7   share\n"
        "AVG        1  1  1  2  2  2  3  3     2-3"
    )


def test_lag_is_a_column() -> None:
    text = screen_of("AVG", queues=4, members=2, lag="1000,0,5,0")
    assert "share  waiting" in text
    assert "5-1,000" in text


def test_rooms_are_named_when_there_are_several() -> None:
    assert "c1  room1   c2  room2   c3  room1" in screen_of("AVG", brokers=2)


def test_queues_without_an_owner_are_named() -> None:
    text = screen_of("CONFIG", queues=40, members=2, then=MemberChange.KILL)
    assert "CONFIG: nobody has 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 and 8 more" in text
    assert "*-" in text
    assert "least." not in text


def test_a_leaving_and_a_killed_member_differ_in_messages_that_come_twice() -> None:
    assert "c3 commits before it leaves" in screen_of("AVG", then=MemberChange.LEAVE)
    assert "c3 commits nothing more" in screen_of("AVG", then=MemberChange.KILL)


def test_very_many_queues_are_only_counted() -> None:
    text = screen_of("STICKY", queues=1000, members=40, then=MemberChange.LEAVE)
    assert "STICKY    25-26     25     25" in text
    assert "and 16 more" in text
