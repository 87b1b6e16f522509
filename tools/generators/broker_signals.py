"""ARCHITECTURE.md's table of a broker's signals, drawn from `connect` in broker/wiring.py.

python tools/generators/broker_signals.py            prints the table
python tools/generators/broker_signals.py --write    puts it into ARCHITECTURE.md
"""

import argparse
import ast
from collections.abc import Iterator

import architecture_map
import house

WIRING = architecture_map.PACKAGE / "broker" / "wiring.py"
BEGIN = "<!-- signals: begin (make map) -->\n"
END = "<!-- signals: end -->\n"


def follower(node: ast.expr) -> str:
    """The function that is called, without the arguments that are bound to it."""
    match node:
        case (
            ast.Lambda(body=ast.Call(func=called))
            | ast.Call(func=ast.Name(id="partial"), args=[called, *_])
        ):
            return ast.unparse(called).lstrip("_")
        case ast.Call(func=made):
            return ast.unparse(made)
        case _:
            return ast.unparse(node)


def signals(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Each signal of a statement with a follower; of settings with the names of those."""
    match statement:
        case ast.AugAssign(target=signal, value=ast.List(elts=nodes) | ast.Dict(values=nodes)):
            yield from ((ast.unparse(signal), follower(node)) for node in nodes)
        case ast.Assign(targets=[ast.Attribute() as signal], value=node):
            yield ast.unparse(signal), follower(node)
        case ast.Expr(value=ast.Call(func=signal, args=[node, *names])):
            said = ", ".join(ast.literal_eval(name) for name in names)
            name = ast.unparse(signal).removesuffix(".append").removesuffix(".subscribe")
            yield name, f"{follower(node)}{said and f' ({said})'}"
        case ast.If(body=body):
            for inner in body:
                yield from signals(inner)
        case _:
            pass


def drawn() -> str:
    """The whole table, as ARCHITECTURE.md holds it."""
    (connect,) = (
        node
        for node in house.tree_of(WIRING).body
        if isinstance(node, ast.FunctionDef) and node.name == "connect"
    )
    table: dict[str, list[str]] = {}
    for statement in connect.body:
        for signal, called in signals(statement):
            table.setdefault(signal, []).append(called)
    width = max(map(len, table))
    lines = (
        f"{signal if not number else '':<{width}}  {called}"
        for signal, followers in table.items()
        for number, called in enumerate(followers)
    )
    text = "\n".join(lines)
    return f"{BEGIN}```\n{text}\n```\n{END}"


def main() -> None:
    """Print the table, or write it into its place."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="into its place, not printed")
    if parser.parse_args().write:
        document = architecture_map.DOCUMENT
        text = document.read_text("utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        document.write_text(f"{before}{drawn()}{after}", "utf-8")
    else:
        print(drawn(), end="")


if __name__ == "__main__":
    main()
