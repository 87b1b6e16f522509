"""Adapters that let programs of other frameworks use Roquet's client."""
