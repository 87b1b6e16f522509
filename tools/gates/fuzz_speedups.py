"""Fuzzing of the compiled inner loops: random input, on which they agree with the Python forms.

python tools/gates/fuzz_speedups.py [--seconds 10] [--seed 1]   the extension that is installed
python tools/gates/fuzz_speedups.py --sanitize …                a copy, with gcc's address sanitizer

A compiled form may leave a call to the Python form (NotImplemented); what it answers itself must be
the same. Afterwards it must hold no reference to its arguments and none of their buffers. The first
difference ends the run and is printed with its call; a seed repeats the same calls.
"""

import argparse
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from inspect import unwrap
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fuzz_inputs import CALLS, Case, usual_items
from roquet.arrow import column_slices, encode, properties, record_layout
from roquet.broker.filtering import record_matcher
from roquet.broker.ingest import property_normalizer
from roquet.spark.sink import property_columns
from roquet.store.commit_log import log
from roquet.store.consume_queue import entries
from roquet.store.key_index import dispatch, index
from roquet.store.replication import queue_builder
from roquet.wire import command, compact, fields, plain_pull, plain_send, signing
from roquet.wire.records import batch, message_id, partial_decode, record
from roquet.wire.records.speedups import extension
from usual_requests import usual_pulls, usual_sends

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "install")]

import wheels  # noqa: E402

BUILD: Final = ROOT / "build" / "fuzz"

SANITIZERS: Final = "-fsanitize=address,undefined"
FLAGS: Final = f"{SANITIZERS} -fno-sanitize-recover=undefined -fno-wrapv -O0"
ENVIRONMENT: Final = {
    # The objects of Python and the buffers of Arrow come from malloc, which the sanitizer watches.
    "PYTHONMALLOC": "malloc",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}

FORMS: Final[dict[str, Any]] = {
    form.__name__: form
    for form in (
        batch.item_columns, batch.encode_items, compact.pack_pairs, command.decode,
        command.decode_whole, fields.encode_frame, log.join_ranges, message_id.offset_message_ids,
        record.pack, record.pack_batch, record.whole_records, partial_decode.property_finder,
        partial_decode.property_positions, record_matcher.record_matcher,
        property_normalizer.plain_facts, property_normalizer.plain_batch, dispatch.key_hashes,
        index.link_entries, entries.entry_columns, entries.sum_sizes, entries.join_entries,
        entries.adjacent_range, plain_pull.found_reply,
        encode.join_properties, column_slices.contains,
        encode.batch_body, property_columns.numbered_texts, record_layout.record_fields,
        column_slices.cut_slices, properties.split_texts, queue_builder.plain_records,
        signing.signed_by, plain_send.put_send, plain_send.stored_reply, plain_send.batch_reply,
    )
}  # fmt: skip
FORMS.update(plain_sends=usual_sends, plain_pulls=usual_pulls, pack_items=usual_items)
"""Functions that have a compiled form, by name: those of plain requests and batches are held to the
ordinary way."""


# -- comparison ----------------------------------------------------------------------------------


class Difference(Exception):
    """A compiled form gave another answer than the Python form, or kept references to arguments."""


def outcome(form: Callable[..., Any], case: Case) -> tuple[str, object]:
    """The value of a call or the kind of its error, and the bytes that it may have changed."""
    own = [bytearray(a) if isinstance(a, bytearray) else a for a in case.arguments]
    try:
        value = form(*own)
        kind = "left" if value is NotImplemented else "value"
        result = value if kind == "left" else case.answer(value)
    except (struct.error, OverflowError):
        kind, result = "does not fit", None
    except Exception as error:
        kind, result = type(error).__name__, str(error)
    for each in own:
        if isinstance(each, bytearray):
            each.append(0)  # BufferError while somebody holds the buffer
            each.pop()
    return kind, (result, [bytes(each) for each in own if isinstance(each, bytearray)])


def references(case: Case) -> list[int]:
    """How many references there are to the arguments, and to the items of lists."""
    counts = []
    for argument in case.arguments:
        items = argument if isinstance(argument, list | tuple) else []
        counts += [sys.getrefcount(one) for one in (argument, *items) if _is_counted(one)]
    return counts


def _is_counted(value: object) -> bool:
    """Whether only this call refers to such a value; small numbers and bytes are shared."""
    kinds = list | tuple | bytearray | memoryview | np.ndarray | pa.Array
    return isinstance(value, kinds) or (isinstance(value, bytes) and len(value) > 1)


def compare(name: str, case: Case) -> str:
    """Compare both forms on one call; gives the kind of the compiled form's outcome."""
    before = references(case)
    fast, fast_result = outcome(getattr(extension, name), case)
    changed = name == "encode_items" and not case.is_sound
    if not changed and references(case) != before:
        raise Difference(f"{name} keeps references after {fast}: {case.arguments}")
    if not case.is_sound:
        return f"{fast}, alone"
    plain, plain_result = outcome(unwrap(FORMS[name]), case)
    are_errors = fast not in {"value", "left"} and plain not in {"value", "left"}
    # Of two faults each form may name another; whether a number fits, Python sees last.
    is_same = (fast, fast_result) == (plain, plain_result) or (
        are_errors and (fast == plain or fast in {"does not fit", "TypeError"})
    )
    if fast != "left" and not is_same:
        raise Difference(
            f"{name}{case.arguments}\n"
            f"compiled: {fast} {fast_result}\n  Python: {plain} {plain_result}"
        )
    return fast


def fuzz(seconds: float, seed: int) -> Counter[tuple[str, str]]:
    """Compare for so many seconds of this process's time; gives the outcomes of each function."""
    random, outcomes = Random(seed), Counter[tuple[str, str]]()
    end = time.process_time() + seconds
    while time.process_time() < end:
        for name, call in CALLS.items():
            outcomes[name, compare(name, call(random))] += 1
    return outcomes


# -- the sanitized copy --------------------------------------------------------------------------


def sanitizer_library() -> str | None:
    """The shared library of the address sanitizer; None without a compiler that has it."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return None
    asked = [compiler, "-print-file-name=libasan.so"]
    run = subprocess.run(asked, check=True, capture_output=True, text=True)
    path = run.stdout.strip()
    return path if Path(path).is_absolute() else None  # the bare name is that of a missing file


def build_sanitized(directory: Path) -> Path:
    """Build the package with sanitizers in a copy; gives the folder for PYTHONPATH."""
    shutil.rmtree(directory, ignore_errors=True)
    sources = wheels.copy_sources(directory)
    build = "import setuptools; setuptools.setup()"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, "--quiet", "build_ext", "--inplace"],
        check=True, cwd=sources, stdout=subprocess.DEVNULL,
        env={**os.environ, "CFLAGS": FLAGS, "LDFLAGS": SANITIZERS},
    )  # fmt: skip
    if not any((sources / "src").glob(f"{wheels.EXTENSION}*.so")):  # it is optional
        raise SystemExit("the compiled inner loops could not be built, as the lines above say")
    return sources / "src"


def run_sanitized(library: str, arguments: Sequence[str], directory: Path = BUILD) -> int:
    """Fuzz the sanitized copy in a process of its own; gives its exit status."""
    source = build_sanitized(directory)
    return subprocess.run(
        [sys.executable, __file__, *arguments], check=False,
        env={**os.environ, **ENVIRONMENT, "LD_PRELOAD": library, "PYTHONPATH": str(source)},
    ).returncode  # fmt: skip


def report(outcomes: Counter[tuple[str, str]]) -> Iterator[str]:
    """Lines that say how often each function ended in which way."""
    for name in CALLS:
        kinds = sorted((kind, n) for (of, kind), n in outcomes.items() if of == name)
        yield f"{name:20} " + " · ".join(f"{kind} {n:,}" for kind, n in kinds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz as the command line asks; 1 after a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10, help="of processor time (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the input (default 1)")
    parser.add_argument("--sanitize", action="store_true", help="a copy with gcc's sanitizers")
    options = parser.parse_args(arguments)
    if options.sanitize:
        if (library := sanitizer_library()) is None:
            print("nothing was fuzzed: there is no C compiler with the address sanitizer here")
            return 0
        return run_sanitized(library, [f"--seconds={options.seconds}", f"--seed={options.seed}"])
    if extension is None:
        print("nothing was fuzzed: the inner loops are not compiled here: make install")
        return 0
    warnings.simplefilter("ignore")  # numpy's, about numbers of odd input that do not fit
    try:
        outcomes = fuzz(options.seconds, options.seed)
    except Difference as difference:
        print(f"seed {options.seed}: {difference}")
        return 1
    print("\n".join(report(outcomes)))
    print(f"{outcomes.total():,} calls, seed {options.seed}: both forms agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
