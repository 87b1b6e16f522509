"""A library: a round-trip client of plain sockets and epoll, and the brokers that it is pointed at.

Each connection has one request in flight and sends the next when its reply has come. Requests are
prepared (SEND_MESSAGE_V2, header in JSON), so the client spends little, and the same on each side.
Linux only.
"""

import contextlib
import itertools
import resource
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.lib.calibration import Calibration, steadily
from bench.lib.measures import cpu_seconds, percentile
from harness import genuine
from harness.ports import free_port
from harness.processes import ROQUET, Process
from roquet.cli.process.runtime import LIFELINE
from roquet.model.topic import TopicConfig
from roquet.wire.calls.admin.topic import CreateTopics
from roquet.wire.calls.bodies import TopicConfigs
from roquet.wire.calls.send import Send
from roquet.wire.codes import SerializeType
from roquet.wire.fastjson import codec
from roquet.wire.fields import AnyCall, encode_call
from roquet.wire.records.batch import encode_item
from roquet.wire.signing import Signer

QUEUES: Final = 4
PREPARED: Final = 64
"""Different requests, where they are small: each has keys of its own."""
PREPARED_BYTES: Final = 16 * 1024 * 1024
REPLY_SECONDS_MAX: Final = 30
PREPARING: Final = 4
"""Connections that send each request once, before a measurement."""
PASSES_MAX: Final = 5
PORT_STEP: Final = 10
"""Between the ports of two brokers of `roquet serve`."""

Address = tuple[str, int]


@dataclass(frozen=True)
class Load:
    """Shape of the requests, and how many connections send them."""

    connections: int = 64
    topics: int = 1
    size: int = 128
    """Bytes of each body."""
    batch: int = 1
    """Messages of a request."""
    signer: Signer | None = None
    """Signs each request; None: they are sent unsigned."""

    def encode(self, call: AnyCall, opaque: int) -> bytes:
        """The frame of one request."""
        encode = self.signer.encode_call if self.signer else encode_call
        return encode(call, opaque=opaque, serialize_type=SerializeType.JSON)


@dataclass(frozen=True)
class Result:
    """One measurement of a load on one side."""

    messages: int
    refused: int
    """Messages of requests that were answered with an error."""
    seconds: float
    broker_s: float
    """CPU seconds of all brokers."""
    client_s: float
    """CPU seconds of this process."""
    trips_ms: Sequence[float]
    """Milliseconds of each request, ascending."""
    calibration: Calibration | None = None

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def broker_us(self) -> float:
        """Microseconds of broker CPU for each message."""
        return self.broker_s / max(self.messages, 1) * 1e6

    @property
    def client_share(self) -> float:
        """Share of one core that this process used."""
        return self.client_s / self.seconds

    def trip_ms(self, percent: int) -> float:
        """A percentile of the round trip, in milliseconds."""
        return percentile(self.trips_ms, percent)


@dataclass
class Brokers:
    """Running brokers of one side."""

    name: str
    addresses: list[Address]
    pids: list[int]
    namesrv: str = ""

    def cpu_seconds(self) -> float:
        """CPU time of all of them so far."""
        return sum(map(cpu_seconds, self.pids))


def requests(load: Load) -> list[bytes]:
    """Frames of a load: every topic, and as many queues as there are frames for."""
    fitting = PREPARED_BYTES // (load.size * load.batch + 1)
    count = max(load.topics, min(PREPARED, max(fitting, QUEUES)))
    return [_request(load, number) for number in range(count)]


def _request(load: Load, number: int) -> bytes:
    body = b"x" * load.size
    keys = [_properties(number * load.batch + item) for item in range(load.batch)]
    batch = b"".join(encode_item(0, body, each.encode()) for each in keys)
    call = Send(
        producer_group="bench",
        topic=_topic(number % load.topics),
        queue_id=number // load.topics % QUEUES,
        born_timestamp=1_700_000_000_000,
        properties=keys[0] if load.batch == 1 else "WAIT\x01true\x02",
        batch=load.batch > 1,
        body=body if load.batch == 1 else batch,
    )
    return load.encode(call, number)


def _creation(load: Load) -> bytes:
    """One request that creates all topics: brokers save the table of topics for each request."""
    topics = [
        TopicConfig(topic_name=_topic(number), read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        for number in range(load.topics)
    ]
    body = codec.dumps(TopicConfigs(topic_config_list=topics))
    return load.encode(CreateTopics(body=body), 1)


def _topic(number: int) -> str:
    return f"BenchmarkTest{number}"


def _properties(number: int) -> str:
    return f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


class Connection:
    """A socket with one request in flight."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.received = b""
        self.unsent: memoryview | None = None
        self.began = 0.0

    def send(self, frame: bytes | memoryview) -> bool:
        """Send what the socket takes; whether that was all."""
        try:
            taken = self.socket.send(frame)
        except BlockingIOError:
            taken = 0
        self.unsent = memoryview(frame)[taken:] if taken < len(frame) else None
        return self.unsent is None

    def reply(self) -> bytes | None:
        """The frame of a reply without its length, once it is complete."""
        data = self.socket.recv(65_536)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self.received += data
        if len(self.received) < 4:
            return None
        end = 4 + int.from_bytes(self.received[:4])
        if len(self.received) < end:
            return None
        frame, self.received = self.received[4:end], self.received[end:]
        return frame


class Client:
    """Connections to the brokers in turn; each block of requests leaves them idle and open."""

    def __init__(self, addresses: Sequence[Address], connections: int) -> None:
        self._connections = {}
        self._poll = select.epoll()
        for _, address in zip(range(connections), itertools.cycle(addresses), strict=False):
            connection = Connection(address)
            self._connections[connection.socket.fileno()] = connection
            self._poll.register(connection.socket, select.EPOLLIN)
        self.refused = 0
        self.refusal = b""
        """The first reply with an error."""

    def close(self) -> None:
        """Close all connections."""
        self._poll.close()
        for connection in self._connections.values():
            connection.socket.close()

    def run(self, frames: Iterator[bytes], seconds: float) -> list[float]:
        """Send until the time is over or no frame is left; seconds of each round trip."""
        until = time.perf_counter() + seconds
        trips: list[float] = []
        in_flight = 0
        for connection, frame in zip(self._connections.values(), frames, strict=False):
            self._begin(connection, frame)
            in_flight += 1
        while in_flight:
            events = self._poll.poll(REPLY_SECONDS_MAX)
            if not events:
                raise RuntimeError(f"{in_flight} requests had no reply in {REPLY_SECONDS_MAX} s")
            for descriptor, event in events:
                connection = self._connections[descriptor]
                if event & select.EPOLLOUT:
                    self._send_rest(connection)
                if not event & ~select.EPOLLOUT or (reply := connection.reply()) is None:
                    continue
                now = time.perf_counter()
                trips.append(now - connection.began)
                self._check(reply)
                following = next(frames, None) if now < until else None
                if following is None:
                    in_flight -= 1
                else:
                    self._begin(connection, following)
        return trips

    def _begin(self, connection: Connection, frame: bytes) -> None:
        connection.began = time.perf_counter()
        if not connection.send(frame):
            self._poll.modify(connection.socket, select.EPOLLIN | select.EPOLLOUT)

    def _check(self, reply: bytes) -> None:
        if b'"code":0,' not in reply and b'"code":0}' not in reply:
            self.refused += 1
            self.refusal = self.refusal or reply

    def _send_rest(self, connection: Connection) -> None:
        if connection.unsent is None or connection.send(connection.unsent):
            self._poll.modify(connection.socket, select.EPOLLIN)


def measure(
    brokers: Brokers, load: Load, seconds: float, *, warm: float = 0.2, bytes_max: int | None = None
) -> Result:
    """Each request once, `warm` seconds that do not count, then the measurement.

    `bytes_max` bounds the bodies that a measurement sends: large ones fill disks.
    """

    def once() -> Result:
        return _measure(brokers, load, seconds, warm, bytes_max)

    if not seconds:
        return once()  # only to warm up
    found, calibration = steadily(once)
    return replace(found, calibration=calibration)


def _measure(
    brokers: Brokers, load: Load, seconds: float, warm: float, bytes_max: int | None
) -> Result:
    frames = requests(load)
    _prepare(brokers, load, frames)
    with contextlib.closing(Client(brokers.addresses, load.connections)) as client:
        count = None if bytes_max is None else max(bytes_max // len(frames[0]), len(frames))
        client.run(itertools.islice(itertools.cycle(frames), count), warm)
        client.refused, client.refusal = 0, b""
        began, broker_s, client_s = time.perf_counter(), brokers.cpu_seconds(), time.process_time()
        trips = client.run(itertools.islice(itertools.cycle(frames), count), seconds)
        took = time.perf_counter() - began
        if client.refusal:
            print(f"  {brokers.name}: {client.refused} refused: {client.refusal[:200]!r}")
        return Result(
            messages=(len(trips) - client.refused) * load.batch,
            refused=client.refused * load.batch,
            seconds=took,
            broker_s=brokers.cpu_seconds() - broker_s,
            client_s=time.process_time() - client_s,
            trips_ms=sorted(trip * 1000 for trip in trips),
        )


def in_turn(
    sides: Sequence[tuple[Brokers, Load]], rounds: int, seconds: float
) -> list[list[Result]]:
    """Results of each side, whose brokers all run: every other round begins with the last side."""
    results: list[list[Result]] = [[] for _ in sides]
    for number in range(rounds):
        places = range(len(sides))
        for place in reversed(places) if number % 2 else places:
            brokers, load = sides[place]
            results[place].append(measure(brokers, load, seconds))
        shown = " and ".join(f"{each[-1].broker_us:.2f}" for each in results)
        print(f"  {shown} us", flush=True)
    return results


def _prepare(brokers: Brokers, load: Load, frames: list[bytes]) -> None:
    """Topics created, and each request once at each broker: queue files are made.

    Repeated while a broker refuses some: a genuine one that has just started is often busy.
    """
    for address in brokers.addresses:
        for _ in range(PASSES_MAX):
            with contextlib.closing(Client([address], PREPARING)) as client:
                client.run(iter([_creation(load)]), float("inf"))
                client.run(iter(frames), float("inf"))
            if not client.refused:
                break


def median(results: Sequence[Result], figure: Callable[[Result], float]) -> float:
    """The median of one figure of some rounds."""
    return statistics.median(map(figure, results))


# -- the sides -----------------------------------------------------------------------------------


@contextlib.contextmanager
def ours(folder: Path, brokers: int = 1, settings: str = "") -> Iterator[Brokers]:
    """`roquet serve` in a folder; `settings` are lines of a broker.conf."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port(*range(PORT_STEP, PORT_STEP * brokers, PORT_STEP))
    names, config = free_port(), folder / "broker.conf"
    config.write_text(settings)
    command = [*ROQUET, "serve", "--brokers", str(brokers), "--port", str(port)]
    command += ["--namesrv-port", str(names), "--data", str(folder / "data")]
    command += ["--host", "127.0.0.1", "--config", str(config)]
    log, home = folder / "serve.log", folder / "home"
    lifeline = {LIFELINE: "1"}  # it ends with this process, even if that is killed
    with Process(command, log, ready="ready (", home=home, environ=lifeline) as child:
        addresses = [("127.0.0.1", port + PORT_STEP * number) for number in range(brokers)]
        yield Brokers("ours", addresses, _broker_processes(child.pid), f"127.0.0.1:{names}")


def _broker_processes(pid: int) -> list[int]:
    """The children of `roquet serve` that are brokers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"\0broker\0" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@contextlib.contextmanager
def theirs(folder: Path, brokers: int = 1) -> Iterator[Brokers]:
    """Brokers of Apache RocketMQ, each with a name server of its own."""
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(genuine.cluster(folder / f"genuine-{number}"))
            for number in range(brokers)
        ]
        addresses = [one.broker.rpartition(":") for one in running]
        yield Brokers(
            "genuine", [(host, int(port)) for host, _, port in addresses], [o.pid for o in running]
        )


Start = Callable[[Path, int], contextlib.AbstractContextManager[Brokers]]


def sides(*, ours_only: bool) -> dict[str, Start]:
    """Functions that start each side, in turn; without the genuine broker where it cannot run."""
    if not ours_only and (lack := genuine.missing()):
        print(lack)
        ours_only = True
    return {"ours": ours} if ours_only else {"genuine": theirs, "ours": ours}


def allow_descriptors() -> None:
    """Raise the limit of open files to the hard one, for this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident memory of a process in MiB: its own, and pages of files that it maps."""
    found = {"RssAnon": 0.0, "RssFile": 0.0, "RssShmem": 0.0}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) / 1024
    return found["RssAnon"], found["RssFile"] + found["RssShmem"]


def descriptors(pid: int) -> int:
    """Open file descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
