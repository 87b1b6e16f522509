"""Metrics of a broker: computed from its parts when the page is asked for."""
