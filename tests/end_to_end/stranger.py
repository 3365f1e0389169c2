"""A user of a silo's machine without a kit or a certificate: `python stranger.py PORT SILO ORIGIN
TOPIC BODY JOB` over the loopback.
"""

from __future__ import annotations

import os
import sys
import time

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.private.admin_defs import Message
from nvflare.private.defs import RequestHeader, new_cell_message

port, silo, origin, topic, body, job = sys.argv[1:]
cell = Cell(
    fqcn=f"{silo}.stranger",
    root_url="",
    secure=False,
    credentials={},
    parent_url=f"tcp://localhost:{port}",
)
cell.start()


def pretend(message: object) -> None:
    message.set_header(MessageHeaderKey.ORIGIN, origin)  # type: ignore[attr-defined]


cell.core_cell.add_outgoing_request_filter(channel="*", topic="*", cb=pretend)
asked = Message(topic, body)
asked.set_header(RequestHeader.JOB_ID, job)
for _ in range(20):
    if cell.core_cell.is_cell_connected(silo):
        break
    time.sleep(0.1)
reply = cell.send_request(
    channel=CellChannel.CLIENT_MAIN,
    topic="admin",
    target=silo,
    request=new_cell_message({}, asked),
    timeout=2.0,
)
sys.stdout.write(str(getattr(reply.payload, "body", reply.headers)))
sys.stdout.flush()
os._exit(0)
