"""Command line: `roquet` and its commands, by family."""
