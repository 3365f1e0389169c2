"""The silo's end: a process per message, which hands it to the silo's vault. Where the vault is comes
from the environment of the silo's own node, never from the run.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from sumus.engines.flower.records import body_of, record_of
from sumus.engines.relay import Relay
from sumus.errors import EngineError

__all__ = ["app"]

app = ClientApp()


@app.query()  # type: ignore[untyped-decorator]
def answer(message: Message, context: Context) -> Message:
    """Hand a message to the silo's vault and its answer back; no answer is an error reply, which
    says nothing of this machine.
    """
    reply = Relay.of_environment().handle(body_of(message.content))
    if reply is None:
        raise EngineError("the silo's vault gives no answer. Its own people find the reason there.")
    return Message(record_of(reply), reply_to=message)
