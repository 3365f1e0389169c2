"""The silo's end: a process per message. The folder comes from the silo's own node configuration,
never from the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from sumus.errors import EngineError
from sumus.parties import SiloState, open_party

__all__ = ["BODY", "NAME_ACTION", "RECORD", "app"]

RECORD, BODY = "sumus", "bytes"
NAME_ACTION = "name"

app = ClientApp()


@app.query()  # type: ignore[untyped-decorator]
def answer(message: Message, context: Context) -> Message:
    """Hand a message to the silo's party and its answer back."""
    body = message.content.config_records[RECORD][BODY]
    with _reasons_stay_here():
        party = open_party(_folder(context))
    try:
        reply = party.handle(bytes(body) if isinstance(body, bytes) else b"")
    finally:
        party.close()
    return Message(RecordDict({RECORD: ConfigRecord({BODY: reply})}), reply_to=message)


@app.query(NAME_ACTION)  # type: ignore[untyped-decorator]
def name(message: Message, context: Context) -> Message:
    """Which silo this node says it belongs to: a node that lies can lock that silo out, but has no
    key to send an input in its name.
    """
    with _reasons_stay_here():
        silo = SiloState(_folder(context)).identity.name
    return Message(RecordDict({RECORD: ConfigRecord({BODY: silo.encode()})}), reply_to=message)


@contextmanager
def _reasons_stay_here() -> Iterator[None]:
    """Flower tells the server what an exception says, and ours name folders of this silo: they go
    into its own log instead.
    """
    try:
        yield
    except Exception:
        logging.getLogger(__name__).exception("the silo's folder cannot be opened")
        raise EngineError(
            "a silo cannot open its own folder. Its own people find the reason in the log of its "
            "SuperNode."
        ) from None


def _folder(context: Context) -> Path:
    return Path(str(context.node_config["state"]))
