from typer.main import get_command

from roquet.cli.spark_jobs.commands import app


def test_the_help_lists_what_makes_a_table_first() -> None:
    names = list(get_command(app).commands)  # type: ignore[attr-defined]
    assert names == ["archive", "lag", "audit", "materialize", "replay", "repair", "maintain"]
