"""Metrics: counters, the table of all metrics, and the text format of Prometheus."""
