"""Demos that run from a checkout alone, `python -m demos.NAME`."""
