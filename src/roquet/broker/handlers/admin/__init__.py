"""Handlers of operators: topics, groups, settings, statistics, resets, cleaning, inspection."""
