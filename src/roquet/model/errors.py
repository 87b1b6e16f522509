"""The error tree: whose fault it was, and whether the effect is known.

RoquetError
├── ConfigError           the user's settings
├── UsageError            the user's call (wrong name, closed client, after a fork)
├── MessageIllegal        a message over one of its limits
├── RecordError           bytes that are not a whole record
├── RemoteProtocolError   bytes that are not our protocol: the peer's fault
├── FieldError            a call whose fields are missing or ill-typed; the connection goes on
├── StoreError            the disk: what it holds, or what it refuses
│   ├── StoreFull         refused before the disk is full
│   ├── StoreFailed       the disk lost what it was given: nothing more is taken until a restart
│   └── StoreLocked       another process holds the directory
└── CallError             a conversation that did not end well
    ├── CallRefused       the peer answered, and said no
    ├── ConnectFailed     nobody was there
    ├── ConnectionLost    somebody was there, and went
    └── CallTimeout       no answer in time
"""

from roquet.model.printable_text import printable


class RoquetError(Exception):
    """Everything that Roquet raises on purpose."""


class ConfigError(RoquetError):
    """A setting that cannot be used; the text names it and says what to do."""


class UsageError(RoquetError):
    """A call that can never work as it was made."""


class RecordError(RoquetError):
    """Bytes that are not a whole message record."""


class RemoteProtocolError(RoquetError):
    """Bytes from a peer that are not the remoting protocol; the connection cannot go on."""


class FieldError(RoquetError):
    """A call or body with a missing or ill-typed field, which the text names."""


class StoreError(RoquetError):
    """What a data directory holds cannot be used; the text names the file and says what to do."""


class StoreFull(StoreError):
    """A write that was refused because the disk is, or soon would be, full. Nothing was stored."""


class StoreFailed(StoreError):
    """A disk that lost what it was given: nothing is taken or called durable until a restart.

    Whether the messages that waited for the disk survive a loss of power is unknown; of those that
    are refused from then on nothing was stored.
    """


class StoreLocked(StoreError):
    """The data directory is held by another process."""


class MessageIllegal(RoquetError):
    """A message over one of its limits; nothing was stored or sent."""


class CallError(RoquetError):
    """A conversation that did not end well.

    `definite` is true when the effect certainly did not happen, so that the call may be made again
    elsewhere without fear of doing it twice.
    """

    def __init__(self, text: str, *, definite: bool) -> None:
        super().__init__(text)
        self.definite = definite


class CallRefused(CallError):
    """The peer answered, and said no: a response code (wire.codes.ResponseCode) and a remark.

    The error's text shows the remark escaped (`model.printable_text.printable`); `remark` is as it
    came.
    """

    def __init__(self, code: int, remark: str | None = None, *, definite: bool = True) -> None:
        super().__init__(f"code {int(code)}: {printable(remark or 'refused')}", definite=definite)
        self.code = int(code)
        self.remark = remark


class ConnectFailed(CallError):
    """No connection could be made, so nothing was asked."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=True)


class ConnectionLost(CallError):
    """The connection ended before the answer came: the effect is unknown."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=False)


class CallTimeout(CallError):
    """No answer in time: the effect is unknown."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=False)
