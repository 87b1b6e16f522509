"""Process usage: processor time and page faults of this process, as the system counts them."""

import os

import msgspec


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Processor time and page faults of a process since its start."""

    cpu_s: float
    minor_faults: int | None = None
    """Page faults without reading the disk; None where the system does not count them."""
    major_faults: int | None = None
    """Page faults that waited for the disk."""


def process_usage() -> ProcessUsage:
    """The usage of this process so far."""
    times = os.times()
    cpu_s = times.user + times.system
    try:
        import resource  # not on Windows
    except ImportError:
        return ProcessUsage(cpu_s=cpu_s)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUsage(cpu_s=cpu_s, minor_faults=usage.ru_minflt, major_faults=usage.ru_majflt)
