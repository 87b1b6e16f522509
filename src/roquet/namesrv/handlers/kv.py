"""Named values that operators keep."""

from roquet.model.errors import CallRefused
from roquet.namesrv.state import NameServerState
from roquet.net.router import Peer
from roquet.net.threads import in_thread
from roquet.wire.call import Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.bodies import KVTable
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


async def put_value(state: NameServerState, call: calls.PutKV, _peer: Peer) -> Reply:
    """Keeps a value; it is on the disk when this is answered."""
    state.values.put(call.namespace, call.key, call.value)
    await _saved(state)
    return Reply()


def get_value(state: NameServerState, call: calls.GetKV, _peer: Peer) -> calls.ValueReply:
    """Gives a kept value back."""
    value = state.values.get(call.namespace, call.key)
    if value is None:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND,
            f"No config item, Namespace: {call.namespace} Key: {call.key}",
        )
    return calls.ValueReply(value=value)


async def delete_value(state: NameServerState, call: calls.DeleteKV, _peer: Peer) -> Reply:
    """Forgets a kept value, on the disk as well."""
    state.values.delete(call.namespace, call.key)
    await _saved(state)
    return Reply()


def list_values(state: NameServerState, call: calls.ListKV, _peer: Peer) -> Reply:
    """All values of a namespace."""
    values = state.values.all(call.namespace)
    if not values:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {call.namespace}"
        )
    return Reply(body=codec.dumps(KVTable(table=dict(values))))


async def _saved(state: NameServerState) -> None:
    """Wait until the disk has the values as they are now; those who wait share one write."""
    async with state.saving:
        if work := state.values.saving():
            await in_thread(work)
