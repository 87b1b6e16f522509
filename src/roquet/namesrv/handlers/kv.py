"""Key-value settings: set, read, deleted and listed by operators."""

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
    """Set a value; it is on the disk when this returns."""
    state.kv_store.put(call.namespace, call.key, call.value)
    await _saved(state)
    return Reply()


def get_value(state: NameServerState, call: calls.GetKV, _peer: Peer) -> calls.ValueReply:
    """Read a value."""
    value = state.kv_store.get(call.namespace, call.key)
    if value is None:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND,
            f"No config item, Namespace: {call.namespace} Key: {call.key}",
        )
    return calls.ValueReply(value=value)


async def delete_value(state: NameServerState, call: calls.DeleteKV, _peer: Peer) -> Reply:
    """Delete a value, on the disk as well."""
    state.kv_store.delete(call.namespace, call.key)
    await _saved(state)
    return Reply()


def list_values(state: NameServerState, call: calls.ListKV, _peer: Peer) -> Reply:
    """List the values of a namespace."""
    values = state.kv_store.all(call.namespace)
    if not values:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {call.namespace}"
        )
    return Reply(body=codec.dumps(KVTable(table=dict(values))))


async def _saved(state: NameServerState) -> None:
    """Wait until the disk has the values as they are now; concurrent callers share one write."""
    async with state.saving:
        if work := state.kv_store.saving():
            await in_thread(work)
