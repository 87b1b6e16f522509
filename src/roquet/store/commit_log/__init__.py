"""The commit log: every message of every topic, appended in order of arrival."""
