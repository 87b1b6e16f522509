"""Exporter: the metrics page of a server process, over HTTP on a port of its own."""
