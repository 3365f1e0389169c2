"""The silo's end: a process per message. The folder comes from the silo's own node configuration, never from the run."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from sumus.engines.silo_state import SiloState
from sumus.engines.site import open_party

__all__ = ["BODY", "NAME_ACTION", "RECORD", "app"]

RECORD, BODY = "sumus", "bytes"
NAME_ACTION = "name"

app = ClientApp()


@app.query()  # type: ignore[untyped-decorator]
def answer(message: Message, context: Context) -> Message:
    """Hand a message to the silo's party and its answer back."""
    body = message.content.config_records[RECORD][BODY]
    party = open_party(_folder(context))
    try:
        reply = party.handle(bytes(body) if isinstance(body, bytes) else b"")
    finally:
        party.close()
    return Message(RecordDict({RECORD: ConfigRecord({BODY: reply})}), reply_to=message)


@app.query(NAME_ACTION)  # type: ignore[untyped-decorator]
def name(message: Message, context: Context) -> Message:
    """Which silo this node belongs to; whoever lies about it fails the first signature."""
    own = SiloState(_folder(context)).identity.name
    return Message(RecordDict({RECORD: ConfigRecord({BODY: own.encode()})}), reply_to=message)


def _folder(context: Context) -> Path:
    return Path(str(context.node_config["state"]))
