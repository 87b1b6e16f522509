"""Sampling: rates, lag and queue owners over time, in memory."""
