"""Connections: a client's identity, routes, heartbeats, security and background tasks.

    session ──▶ identity     client id, message ids
            ──▶ security     request signing, TLS
            ──▶ routes       topics and brokers, refreshed from name servers
            ──▶ heartbeats   this client at the brokers, members of its group
            ──▶ background   supervised loops, throttled logs

`open_consumers` and `stop_signals` are per process; `loop_thread` and `threads` serve code that
blocks.
"""
