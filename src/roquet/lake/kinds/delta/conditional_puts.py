"""Conditional puts: whether an object store refuses to create an object that is there already.

    check_conditional_puts(location)    # ConfigError at a store that would replace log entries

A store that ignores `If-None-Match: *`, or Google's `x-goog-if-generation-match: 0`, accepts two
log entries of one number: the second replaces the first, and its messages are lost. deltalake looks
for an entry before it sends one, so only two writers at the same moment show it. Two threads create
one small table here:

    one creates it, the other's request is refused     the store is safe
    both create it                                     it is not, if that happens again and again
    one finds the other's table before it sends        nothing is known yet
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from threading import Barrier, BrokenBarrierError
from typing import Final
from uuid import uuid4

import pyarrow as pa

from roquet.lake.files.object_staging import RUNS
from roquet.lake.kinds.delta.storage import log_options
from roquet.lake.objects.object_location import S3, ObjectLocation
from roquet.lake.objects.object_store import ObjectStore, explanation
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError

log = logger(__name__)

WRITERS: Final = 2

START_S: Final = 60
"""Most time that one writer waits for the other's thread."""

EXISTS: Final = "already exists"
"""In deltalake's error for a table that it has found before it sent anything."""

DOUBLES_MIN: Final = 3
"""Tables that have to be created twice before a store is refused, with none that is not: a server
that is only for tests (moto's) looks and writes in two steps, and rarely lets a second one in."""

TRIES: Final = 10
"""Most tables that are created."""

FIELDS: Final = pa.schema({"unused": pa.int32()})


def check_conditional_puts(location: ObjectLocation) -> None:
    """Raise ConfigError when the store of a location ignores the condition of such requests.

    Only servers with an endpoint of their own are tried, each location once in a process, by some
    ten small requests: AWS, Azure and Google are known to honour it.
    """
    if location.endpoint:
        check_server(location.url, tuple(sorted(location.options.items())))


@lru_cache(maxsize=64)
def check_server(url: str, options: tuple[tuple[str, str], ...]) -> None:
    """Try the server of a location with these sorted options; kept where it was found safe."""
    location = ObjectLocation(url, dict(options))
    directory = f"{RUNS}/puts-{uuid4().hex[:12]}"  # one that is left is removed as an old mark is
    try:
        is_safe = _is_safe(location, directory)
    finally:
        with suppress(FileNotFoundError, RoquetError):
            ObjectStore(location).remove_directory(directory)
    if not is_safe:
        condition = location.provider.condition
        other = ", or an Iceberg table, whose catalog decides" if location.provider is S3 else ""
        raise ConfigError(
            f"{location.server} accepted one object of {location} from two writers: it ignores "
            f"{condition}, so one archive would replace another's commit, and messages would be "
            f"lost. Give a store that honours it{other}"
        )


def _is_safe(location: ObjectLocation, directory: str) -> bool:
    doubles = 0
    for number in range(TRIES):
        place = ObjectLocation(location.file(f"{directory}/{number}"), location.options)
        refuses = create_twice(place, location)
        if refuses:
            return True
        doubles += refuses is False
        if doubles == DOUBLES_MIN:
            return False
    condition = location.provider.condition
    log.warning("%s: it is unknown whether the store honours %s", location, condition)
    return True


def create_twice(place: ObjectLocation, location: ObjectLocation) -> bool | None:
    """Create the table of a free place from two threads; errors speak of `location`.

    Whether the store refused one of two requests; None when not both were sent and answered.
    """
    barrier = Barrier(WRITERS, timeout=START_S)
    with ThreadPoolExecutor(WRITERS, "roquet-puts") as pool:
        ended = [pool.submit(_create, place, barrier) for _ in range(WRITERS)]
        errors = [error for each in ended if (error := each.result()) is not None]
    return is_refused(errors, location)


def is_refused(errors: list[Exception], location: ObjectLocation) -> bool | None:
    """The result, from the errors of both writers; raises StorageFailed when nothing was sent."""
    from deltalake.exceptions import CommitFailedError

    if not errors:
        return False
    if any(isinstance(error, CommitFailedError) for error in errors):
        return True
    is_early = any(isinstance(each, BrokenBarrierError) or EXISTS in str(each) for each in errors)
    if len(errors) == WRITERS and not is_early:
        raise explanation(errors[0], location) from errors[0]
    return None


def _create(place: ObjectLocation, barrier: Barrier) -> Exception | None:
    from deltalake import CommitProperties, Schema
    from deltalake import DeltaTable as Log
    from deltalake.exceptions import DeltaError

    schema, options = Schema.from_arrow(FIELDS), log_options(place)
    once = CommitProperties(max_commit_retries=0)
    try:
        barrier.wait()
        Log.create(place.url, schema, mode="error", storage_options=options, commit_properties=once)
    except (OSError, DeltaError, BrokenBarrierError) as error:
        return error
    return None
