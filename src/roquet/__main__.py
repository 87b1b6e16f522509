"""python -m roquet and the command roquet: the command line, or how to install its packages."""

import sys

from roquet.cli.terminal.exit_codes import WRONG_USE

ADVICE = """\
roquet: the command line needs {package}, which is not installed:
  pip install 'roquet[cli]'      for the commands of clients and operators
  pip install 'roquet[server]'   for `roquet dev` and the other servers, too
"""


def main() -> None:
    """Run `roquet`; where a package of the command line is missing say how to install it."""
    try:
        from roquet.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "roquet":
            raise
        sys.stderr.write(ADVICE.format(package=error.name))
        sys.exit(WRONG_USE)
    run()


if __name__ == "__main__":
    main()
