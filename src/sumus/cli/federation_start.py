"""`sumus federation start`: serve a federation, or write the unit of the service that does."""

from __future__ import annotations

import ipaddress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sumus.cli.federation_watch import watched_server
from sumus.cli.logs import AuditTo, LogFile, LogFormat, LogLevel, begin_log
from sumus.cli.notifying import Notify, NotifyWhen, notify_options
from sumus.cli.watching import Watch, WatchPort
from sumus.engines import REQUEST, TRANSPORT_KEY
from sumus.errors import PlanError

__all__ = ["start_command"]

_SERVER = "server"


def start_command(
    folder: Annotated[Path, typer.Argument(help="The server's kit, or the folder of `init`.")],
    listen: Annotated[
        str | None,
        typer.Option(
            help="Address of the one interface to listen on. Omitted: the loopback if the kits say "
            "localhost, otherwise every interface."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            help=f"server{TRANSPORT_KEY}, if server{REQUEST} was sent to the coordinator."
        ),
    ] = None,
    log: LogFile = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    audit_to: AuditTo = None,
    watch: Watch = False,
    watch_port: WatchPort = 0,
    notify: Notify = None,
    alert: NotifyWhen = None,
    units: Annotated[
        Path | None,
        typer.Option(help="Write a unit for systemd into this folder instead of starting."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(help="With --units: Unix user of the service. Omitted: the kit's owner."),
    ] = None,
) -> None:
    """Serve: runs until it is stopped, and starts the server again when it dies."""
    from sumus.engines import Kit, serve_kit, write_server_unit

    if listen is not None:
        _require_interface(listen)
    if user is not None and units is None:
        raise PlanError(
            "--user", user, "is for --units", "Start it as that user: sudo -u NAME sumus …"
        )
    within, console = folder / "kits" / "server", Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    kit = Kit.open(within if within.is_dir() else folder, "server")
    remark = kit.engine.complete(kit.path, _SERVER, tls_key, write=True)
    if remark is not None:
        say(remark)
    if units is not None:
        options = [*_given("--log", log), *_given("--log-level", log_level)]
        options += [*_given("--log-format", log_format), *_given("--audit-to", audit_to)]
        options += ["--watch", "--watch-port", str(watch_port)] if watch else []
        options += notify_options(notify, alert)
        done = write_server_unit(units, kit=kit, user=user, listen=listen, options=options)
        typer.echo("\n".join(done))
        return
    begin = partial(begin_log, log, log_level, log_format, audit_to)
    place = kit.path / "server.log"
    with watched_server(
        watch, port=watch_port, say=say, kit=kit, notify=notify, when=alert
    ) as tended:
        ended = serve_kit(
            kit,
            listen=listen,
            log=lambda: begin(party="server", process="start", by_default=place)[0],
            say=say,
            tended=tended,
        )
    raise typer.Exit(ended)


def _given(option: str, value: Path | str | None) -> list[str]:
    where = value.resolve() if isinstance(value, Path) else value
    return [] if where is None else [option, str(where)]


def _require_interface(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise PlanError(
            "--listen",
            address,
            "must be the IPv4 address of an interface of this machine",
            "For example 127.0.0.1, or the address that the silos reach.",
        ) from None
