"""Rows of results, sides, clients and stages for Spark jobs that benchmarks and kill rounds share."""
