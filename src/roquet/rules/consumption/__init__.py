"""Consumption: results of pulls and pops, messages in flight, and the progress to commit."""
