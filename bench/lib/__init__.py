"""Rows, sides, clients and stages that benchmarks and kill rounds share."""
