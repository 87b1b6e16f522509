"""Confirmation: when a message is confirmed: reports of replicas, sync-state set and lease."""
