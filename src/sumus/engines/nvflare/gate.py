"""Which messages the engine's cells take in: the least that a job of ours needs, decided before
unpacking.

A cell answers on many channels (control, network management, streams, tasks), lets other cells pass
messages through it, and connects to whatever address a message offers. Ours is deaf to all but
this:

    a silo          the server on the control channel, where `SiloAgent` decides; its job processes
    a silo's job    messages of ours from the server's process of the same job; commands of its own
                    silo
    the server      whoever speaks in their own name: silos that register, report and take their
                    leave, the operator's commands, its own job processes; nothing passes from one
                    silo to another
    a server's job  commands of the server; silos' processes of the same job that ask for work and
                    answer

A message that is streamed in pieces bears what it carries on every piece, and every piece is looked
at.
The name that a connection goes by is bound to its certificate by the engine; the origin that a
message bears is not, so both must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final
from urllib.parse import urlsplit, urlunsplit

from nvflare.apis.fl_constant import ReservedTopic, ServerCommandNames
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessagePropKey,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)

from sumus.engines.nvflare.executor import TOPIC
from sumus.events import GateRefused, tell
from sumus.service import Signs

__all__ = ["GatedCell", "Route", "on_interface", "takes"]

_SERVER = FQCN.ROOT_SERVER
_OPERATOR = "_admin_"
"""How the names of operators' cells begin; no silo may be called so."""
_ABOUT_STREAMS = (STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC)
_OPERATOR_CHANNELS = frozenset(
    {
        CellChannel.HCI,
        CellChannel.SERVER_MAIN,
        CellChannel.AUX_COMMUNICATION,
        CellChannel.RETURN_ONLY,
        OBJ_DOWNLOADER_CHANNEL,
    }
)
_SERVER_SAYS = frozenset({TOPIC, ReservedTopic.END_RUN})
_SILO_ASKS = frozenset({ReservedTopic.SYNC_RUNNER, ReservedTopic.JOB_HEART_BEAT})


@final
@dataclass(frozen=True, kw_only=True)
class Route:
    """Where a request comes from and where it is meant to go.

    Args:
        neighbour: the cell at the other end of the connection.
        origin: who wrote it, as the message says.
        destination: for whom.
        channel: on which of the destination's channels.
        topic: what about.
        carries: channel and topic of the message of which it streams a piece.
    """

    neighbour: str
    origin: str
    destination: str
    channel: str
    topic: str
    carries: tuple[str, str] | None = None

    @property
    def says(self) -> tuple[str, str]:
        """Channel and topic of the whole message."""
        return (self.channel, self.topic) if self.carries is None else self.carries

    @property
    def is_about_streams(self) -> bool:
        """Whether it acknowledges a stream that this cell sends, or gives one up."""
        return self.channel == STREAM_CHANNEL and self.topic in _ABOUT_STREAMS

    @property
    def is_goodbye(self) -> bool:
        """Whether a neighbour takes its leave."""
        return self.neighbour == self.origin and (self.channel, self.topic) == (
            CellChannel.CELLNET,
            CellChannelTopic.Bye,
        )


def takes(me: str, route: Route, members: frozenset[str] | None = None) -> bool:
    """Whether the cell `me` ("server", "NAME" or either with ".job") takes a request in.

    Args:
        members: of the server: the silos of its roster, who alone may connect; None: whoever the
            authority has certified.
    """
    parent, _, job = me.partition(".")
    if route.channel == STREAM_CHANNEL and (route.carries is None) != route.is_about_streams:
        return False
    if parent == _SERVER:
        if job:
            return _server_job_takes(me, job, route)
        return _is_member(route.neighbour, members) and _server_takes(route)
    return _job_takes(me, parent, job, route) if job else _silo_takes(me, route)


def _is_member(neighbour: str, members: frozenset[str] | None) -> bool:
    """A certificate outlasts a silo's place on the roster."""
    party = _family(neighbour)
    return members is None or party in members or party == _SERVER or party.startswith(_OPERATOR)


def _server_takes(route: Route) -> bool:
    speaker, listener = _family(route.origin), _family(route.destination)
    if speaker != _family(route.neighbour):
        return False
    if route.destination != _SERVER:
        return speaker == listener or _SERVER in (speaker, listener)
    channel, _ = route.says
    if route.is_goodbye:
        return True
    if route.origin.startswith(_OPERATOR):
        return route.is_about_streams or channel in _OPERATOR_CHANNELS
    if speaker == _SERVER:
        return route.is_about_streams or channel in (
            CellChannel.SERVER_PARENT_LISTENER,
            CellChannel.RETURN_ONLY,
        )
    return route.origin == speaker and route.carries is None and channel == CellChannel.SERVER_MAIN


def _server_job_takes(me: str, job: str, route: Route) -> bool:
    if route.destination != me or route.neighbour != _SERVER:
        return False
    channel, topic = route.says
    if route.origin == _SERVER:
        return (
            route.is_goodbye
            or route.is_about_streams
            or channel in (CellChannel.SERVER_COMMAND, CellChannel.RETURN_ONLY)
        )
    if route.origin == me or route.origin != FQCN.join([_family(route.origin), job]):
        return False
    return (
        route.is_about_streams
        or channel == CellChannel.RETURN_ONLY
        or (channel == CellChannel.AUX_COMMUNICATION and topic in _SILO_ASKS)
        or (channel, topic) == (CellChannel.SERVER_COMMAND, ServerCommandNames.GET_TASK)
    )


def _silo_takes(me: str, route: Route) -> bool:
    from_itself = _family(route.neighbour) == _family(route.origin) == me
    if route.destination != me:  # its job processes may speak to the server through it
        return from_itself or (route.neighbour == _SERVER and _family(route.destination) == me)
    if route.is_goodbye:
        return from_itself or route.neighbour == _SERVER
    if route.channel != CellChannel.CLIENT_MAIN:
        return False
    return from_itself or route.neighbour == route.origin == _SERVER


def _job_takes(me: str, parent: str, job: str, route: Route) -> bool:
    if route.destination != me or route.neighbour not in (_SERVER, parent):
        return False
    if route.origin == FQCN.join([_SERVER, job]):
        channel, topic = route.says
        return (
            route.is_about_streams
            or channel == CellChannel.RETURN_ONLY
            or (channel == CellChannel.AUX_COMMUNICATION and topic in _SERVER_SAYS)
        )
    return route.is_goodbye or (
        route.neighbour == route.origin == parent and route.channel == CellChannel.CLIENT_COMMAND
    )


def on_interface(url: str, interface: str) -> str:
    """The address of a listener, on another interface."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{interface}:{parts.port}"))


def _family(cell: str) -> str:
    """The party that a cell belongs to."""
    return cell.partition(".")[0]


@final
class GatedCell(Cell):  # type: ignore[misc]
    """A cell that takes in what `takes` allows, refuses all else, and connects to nobody at a
    message's word.

    Guarantee: what is refused was neither unpacked nor passed on, and an error in deciding is a
        refusal.
    """

    interface: ClassVar[str | None] = None
    """Address of the interface that the server listens on, whatever its configuration says."""

    members: ClassVar[frozenset[str] | None] = None
    """The silos of the server's roster, who alone may connect to it."""

    signs: ClassVar[Signs] = Signs()
    """Of a silo's process: its engine asks the server for something every ten seconds, and whoever
    waits for an answer in vain is alive too.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        if self.interface is not None:
            options["root_url"] = [on_interface(url, self.interface) for url in options["root_url"]]
        super().__init__(*args, **options)
        self.core_cell.set_message_interceptor(self._refusal)
        self.core_cell.add_incoming_filter(channel="*", topic="*", cb=_uninvite)

    def send_request(self, *args: Any, **options: Any) -> Any:
        """See the engine, which finds this method by its name when it is called."""
        try:
            return self.__getattr__("send_request")(*args, **options)
        finally:
            self.signs.turned(ready=True)

    def _refusal(self, message: Any) -> Any:
        header = message.get_header
        piece = (header(MessageHeaderKey.CHANNEL), header(MessageHeaderKey.TOPIC)) == (
            STREAM_CHANNEL,
            STREAM_DATA_TOPIC,
        )
        route = Route(
            neighbour=message.get_prop(MessagePropKey.ENDPOINT).name,
            origin=header(MessageHeaderKey.ORIGIN),
            destination=header(MessageHeaderKey.DESTINATION),
            channel=header(MessageHeaderKey.CHANNEL, ""),
            topic=header(MessageHeaderKey.TOPIC, ""),
            carries=(header(StreamHeaderKey.CHANNEL, ""), header(StreamHeaderKey.TOPIC, ""))
            if piece
            else None,
        )
        if takes(self.core_cell.get_fqcn(), route, self.members):
            return None
        tell(
            GateRefused(
                neighbour=str(route.neighbour),
                origin=str(route.origin),
                channel=str(route.channel),
                topic=str(route.topic),
            )
        )
        return make_reply(ReturnCode.UNAUTHENTICATED, error="refused")


def _uninvite(message: Any) -> None:
    """Forget an offered address: the engine would connect to it in clear, and believe the name it
    is told there.
    """
    message.remove_header(MessageHeaderKey.CONN_URL)
