"""python -m demos.failover: the demo's only command."""

import typer

from demos.failover.command import failover_demo
from roquet.cli.main import run

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
app.command()(failover_demo)

if __name__ == "__main__":
    run(app)
