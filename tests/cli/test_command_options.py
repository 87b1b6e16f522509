from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import typer
from tests.cli.test_main import imported_by
from typer.main import get_command
from typer.testing import CliRunner

from roquet.cli.command_options import (
    As,
    CommandOptions,
    PlainConversion,
    argument,
    convert_plainly,
    declared,
    option,
)
from roquet.cli.operator_command import CommandGroup
from roquet.net.tls import TlsMode


class Common(CommandOptions):
    loud: bool = option("Say it loudly.", "-l")
    place: str | None = option("Where.", metavar="PLACE")


class Greeting(Common):
    name: Annotated[str, typer.Argument()]
    times: int = option("How often.", default=1, gives=As("count", lambda n: 10 * n), min=1)
    place: str | None = option("In which city.")


group = CommandGroup("things", "Things.")


@group.callback(invoke_without_command=True)
def alone(*, loud: bool = option("Say it loudly.")) -> None:
    typer.echo(f"alone {loud}")


@group.command()
def greet(options: Greeting) -> list[str]:
    return [f"{options.name} {options.times} {options.loud} {options.place}"]


@group.command()
def plain(name: str = argument("Who."), *, loud: bool = option("Loudly.")) -> list[str]:
    return [f"{name} {loud}"]


def parameter(kind: Any, default: Any) -> tuple[list[str], Any]:
    field = Parameter("the_name", Parameter.KEYWORD_ONLY, annotation=kind, default=default)
    made = declared(field)
    info = made.annotation.__metadata__[0]  # typer takes the first name in the place of a default
    names = [] if info.default is ... else [info.default, *info.param_decls]
    return names, made.default


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (bool, option(""), (["--the-name"], False)),
        (bool, option("", "-t"), (["--the-name", "-t"], False)),
        (bool, option("", "--on/--off", default=True), (["--on/--off"], True)),
        (bool | None, option(""), ([], None)),
        (str | None, option("", "--id"), (["--id"], None)),
        (str, option("", "-t"), (["--the-name", "-t"], Parameter.empty)),
        (int, option("", default=8), ([], 8)),
        (str, argument(""), ([], Parameter.empty)),
    ],
)
def test_a_declaration_becomes_names_and_a_default_by_its_type(
    kind: Any, default: Any, expected: tuple[list[str], Any]
) -> None:
    assert parameter(kind, default) == expected


def test_a_parameter_without_a_declaration_stays_as_it_is() -> None:
    typed = Parameter("x", Parameter.KEYWORD_ONLY, annotation=Annotated[str, typer.Option()])
    assert declared(typed) is typed


def test_options_of_a_derived_class_come_first_and_one_declared_anew_keeps_its_place() -> None:
    assert [one.name for one in Greeting.declared()] == ["name", "times", "loud", "place"]
    assert Greeting.declared()[-1].annotation.__metadata__[0].help == "In which city."
    values = Greeting(name="Ann")
    assert (values.name, values.times, values.loud, values.place) == ("Ann", 1, False, None)


class Greeted(msgspec.Struct):
    name: str
    count: int = 7
    place: str = "here"


def test_options_give_the_fields_of_a_struct_by_their_names_or_by_others() -> None:
    assert Greeting(name="Ann").fields_of(Greeted) == {"name": "Ann", "count": 10}
    given = Greeting(name="", times=2, place="there")
    assert given.fields_of(Greeted, absent=("",)) == {"count": 20, "place": "there"}


def run(*arguments: str) -> str:
    return CliRunner().invoke(group, list(arguments)).output


def test_declared_options_reach_the_function() -> None:
    assert run("greet", "Ann", "--times", "2", "-l") == "Ann 2 True None\n"
    assert "greater than or equal to 1" in run("greet", "Ann", "--times", "0")
    assert run("plain", "Ann", "--loud") == "Ann True\n"
    assert plain("Ann") == ["Ann False"], "callers of the function see plain defaults"
    assert signature(plain).parameters["name"].default is Parameter.empty


def test_the_command_that_a_group_is_runs_without_the_name_of_another() -> None:
    assert run("--loud") == "alone True\n"
    assert run("--loud", "plain", "Ann") == "Ann False\n"


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
        free: Annotated[int, typer.Option()] = 1, bound: Annotated[int, typer.Option(min=1)] = 1
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
