"""The error tree: whose fault an error is, and whether the call certainly had no effect.

RoquetError
├── ConfigError           the user's settings
├── UsageError            the user's call (wrong name, closed client, after a fork)
│   └── NotFound          it names a topic, group, broker or message that does not exist
├── MessageIllegal        a message over one of its limits
├── RecordError           bytes that are not a whole record
│   ├── BodyError         a body that a consumer's `decode` cannot read
│   └── CodecMissing      a body of a compression whose package is not installed here
├── RemoteProtocolError   bytes that are not our protocol: the peer's fault
├── FieldError            a call whose fields are missing or ill-typed; the connection goes on
├── StoreError            the disk: its content is unusable, or it refuses to work
│   ├── StoreFull         refused before the disk is full
│   ├── StoreFailed       the disk lost a write: no writes are accepted until a restart
│   └── StoreLocked       another process holds the directory
└── CallError             a call without a successful reply
    ├── CallRefused       the peer answered with a refusal
    ├── ConnectFailed     no connection could be made
    ├── ConnectionLost    the connection ended before the reply
    └── CallTimeout       no reply in time
"""

import copyreg

from roquet.model.printable_text import printable


class RoquetError(Exception):
    """Base class of everything that Roquet raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # Without a call of __init__, which Exception would give the text alone: a worker of
        # multiprocessing.Pool dies of an error that it cannot load, and its caller waits for ever.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(RoquetError):
    """A setting that cannot be used; the text names it and says what to do."""


class UsageError(RoquetError):
    """A call that can never succeed as it was made."""


class NotFound(UsageError):
    """A call that names a topic, group, broker or message that does not exist."""


class RecordError(RoquetError):
    """Bytes that are not a whole message record."""


class BodyError(RecordError):
    """A body that a consumer's `decode` cannot read, or that cannot be decompressed for it."""


class CodecMissing(RecordError):
    """A body whose compression needs a package that is not installed; the text names the extra."""


class RemoteProtocolError(RoquetError):
    """Bytes from a peer that are not the remoting protocol; the connection cannot go on."""


class FieldError(RoquetError):
    """A call or body with a missing or ill-typed field, which the text names."""


class StoreError(RoquetError):
    """A data directory that cannot be used; the text names the file and says what to do."""

    definite = True
    """Whether the message that was to be stored is certainly not stored."""


class StoreFull(StoreError):
    """A write refused because the disk is full, or soon would be. Nothing was stored."""


class StoreFailed(StoreError):
    """A disk that lost a write: nothing is accepted or reported as durable until a restart.

    Whether messages that were waiting for the disk survive a loss of power is unknown, and whether
    the one that was being stored is; messages refused from then on are certainly not stored, which
    their errors' `definite` says.
    """

    definite = False


class StoreLocked(StoreError):
    """The data directory is held by another process."""


class MessageIllegal(RoquetError):
    """A message over one of its limits; nothing was stored or sent."""


class CallError(RoquetError):
    """A call without a successful reply.

    `definite` is true if the call certainly had no effect, so that it may be repeated elsewhere
    without the risk of doing it twice.
    """

    def __init__(self, text: str, *, definite: bool) -> None:
        super().__init__(text)
        self.definite = definite


class CallRefused(CallError):
    """The peer refused the call: a response code (wire.codes.ResponseCode) and a remark.

    The error's text shows the remark escaped (`model.printable_text.printable`); `remark` is as it
    came.
    """

    def __init__(self, code: int, remark: str | None = None, *, definite: bool = True) -> None:
        super().__init__(f"code {int(code)}: {printable(remark or 'refused')}", definite=definite)
        self.code = int(code)
        self.remark = remark


class ConnectFailed(CallError):
    """No connection could be made, so no request was sent."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=True)


class ConnectionLost(CallError):
    """The connection ended before the reply came: the effect is unknown."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=False)


class CallTimeout(CallError):
    """No reply in time: the effect is unknown."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=False)
