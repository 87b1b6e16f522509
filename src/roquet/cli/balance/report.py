"""Report: the comparison as an HTML page, and its picture as an SVG file."""

from collections.abc import Sequence

from roquet.cli.balance.compare import StrategyResult, owners_in_order
from roquet.cli.balance.situation import Situation
from roquet.pictures.ownership_grid import (
    OwnershipGrid,
    OwnershipRow,
    ownership_grid,
    standalone_svg,
)
from roquet.pictures.page import Cell, Section, page, table


def html(situation: Situation, results: Sequence[StrategyResult], lines: Sequence[str]) -> str:
    """The page."""
    sections = [
        Section(
            title="Who has which queue",
            text=_picture_text(situation),
            content=picture(situation, results),
        ),
        Section(
            title="In numbers",
            text=_NUMBERS if situation.then else "",
            content=_table(situation, results),
        ),
    ]
    verdict = " ".join(lines) or situation.summary()
    return page(f"Balance: {situation.summary()}", Cell(verdict), sections)


_NUMBERS = (
    "least: moves without which shares cannot end even, which is to differ by one at most. From "
    "uneven shares a strategy may move fewer, and stay uneven."
)


def picture(situation: Situation, results: Sequence[StrategyResult]) -> str:
    """The picture: a strip for each strategy, or two when members change."""
    return ownership_grid(_drawn(situation, results))


def svg(situation: Situation, results: Sequence[StrategyResult]) -> str:
    """The picture as an SVG file."""
    return standalone_svg(_drawn(situation, results))


def _drawn(situation: Situation, results: Sequence[StrategyResult]) -> OwnershipGrid:
    rows: list[OwnershipRow] = []
    for result in results:
        before = [owner for _, owner in owners_in_order(situation, result.before)]
        if not situation.then:
            rows.append(OwnershipRow(name=result.name, owners=before, note=_share(result)))
            continue
        after = owners_in_order(situation, result.after)
        changed = frozenset(result.moved)
        rows.append(OwnershipRow(name=result.name, owners=before))
        rows.append(
            OwnershipRow(
                owners=[owner for _, owner in after],
                marked=[queue in changed for queue, _ in after],
                note=f"{_share(result)} · {len(result.moved)} moved",
            )
        )
    return OwnershipGrid(
        rows=rows,
        columns=[situation.label(queue) for queue in situation.queues],
        owners=situation.all_members,
    )


def _share(result: StrategyResult) -> str:
    least, most = result.sizes.least, result.sizes.most
    return f"{least} each" if least == most else f"{least} to {most}"


def _picture_text(situation: Situation) -> str:
    what = "A column for each queue, in the colour and with the number of the member that has it."
    if not situation.then:
        return what
    return f"{what} Above before, below after; a ring is around each queue that has moved."


def _table(situation: Situation, results: Sequence[StrategyResult]) -> str:
    header = ["strategy", "smallest share", "largest share"]
    header += ["least waiting", "most waiting"] if situation.lag else []
    header += ["moves", "least"] if situation.then else []
    return table([*header, "without an owner"], [_numbers(situation, result) for result in results])


def _numbers(situation: Situation, result: StrategyResult) -> Sequence[Cell | object]:
    even = result.is_even or None
    row: list[Cell | object] = [
        result.name,
        Cell(result.sizes.least, even),
        Cell(result.sizes.most, even),
    ]
    if situation.lag:
        row += [result.waiting.least, result.waiting.most]
    if situation.then:
        row += [Cell(len(result.moved), result.is_least or None), result.fewest]
    return [*row, Cell(len(result.unowned), False if result.unowned else None)]
