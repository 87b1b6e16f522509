"""Benchmarks and rounds under kills: `python -m bench.NAME --help`."""
