"""Kinds of tables that archives fill: Delta and Iceberg, each with its commit."""
