"""python -m roquet: the same as roquet."""

from roquet.cli.main import main

if __name__ == "__main__":
    main()
