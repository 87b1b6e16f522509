"""Processes: the event loop and signals of a command, and child processes."""
