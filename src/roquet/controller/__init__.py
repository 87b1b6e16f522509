"""The controller: elects masters of brokers that replicate, and keeps their sync-state sets."""
