"""Options of servers are converted without pydantic, and as strictly."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from tests.cli.test_main import imported_by
from typer.main import get_command

from roquet.cli.terminal.plain_options import PlainConversion, convert_plainly
from roquet.net.tls import TlsMode


def test_texts_numbers_and_paths_are_converted() -> None:
    assert PlainConversion(int).coerce("7", None, None) == 7
    assert PlainConversion(Path).coerce("a/b", None, None) == Path("a/b")
    assert PlainConversion(str).coerce("x", None, None) == "x"
    assert PlainConversion(int).coerce(None, None, None) is None


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="'x' is not a whole number"):
        PlainConversion(int).coerce("x", None, None)


def test_options_with_bounds_keep_their_own_conversion() -> None:
    app = typer.Typer(add_completion=False)

    @app.command()
    def command(
        free: Annotated[int, typer.Option()] = 1,
        bound: Annotated[int, typer.Option(min=1)] = 1,
    ) -> None:
        """Do nothing."""

    made = get_command(app)
    convert_plainly(made, typer.Context(made))
    kinds = {one.name: "get_runtime_param" in vars(one) for one in made.params}
    assert kinds == {"free": True, "bound": False}


def test_a_server_starts_without_pydantic() -> None:
    modules = imported_by(
        "import sys\n"
        "sys.argv = ['roquet', 'controller', '--port', '0', '--store', 'nowhere']\n"
        "from roquet.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
    )
    assert "roquet.controller.app" in modules
    assert "pydantic" not in modules


def test_a_choice_is_converted_and_a_wrong_one_names_them_all() -> None:
    conversion = PlainConversion(TlsMode)
    assert conversion.coerce("permissive", None, None) is TlsMode.PERMISSIVE
    with pytest.raises(typer.BadParameter, match="'soft' is not one of 'disabled', 'permissive'"):
        conversion.coerce("soft", None, None)
