"""`sumus federation watch`, and what `--watch` does for `train` and `start`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sumus.cli.notifying import Notify, NotifyWhen, looked_out, notify_options, wants_notices
from sumus.cli.terminal import screen
from sumus.cli.watching import WatchPort, served
from sumus.errors import PlanError, StorageError

if TYPE_CHECKING:
    from sumus.engines import Kit, Watch
    from sumus.engines.processes import KeptProcess
    from sumus.parties import Agreement
    from sumus.watching import FederationWatcher

__all__ = ["watch_command", "watched_server", "watched_training_across"]


def watch_command(
    kit: Annotated[Path, typer.Option(help="The operator's kit (kits/admin).")],
    watch_port: WatchPort = 0,
    notify: Notify = None,
    alert: NotifyWhen = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Keeps the page's token, so that its address stays the same."),
    ] = None,
    units: Annotated[
        Path | None,
        typer.Option(help="Write a unit for systemd into this folder instead of serving."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(help="With --units: Unix user of the service. Omitted: the kit's owner."),
    ] = None,
) -> None:
    """Serve a live page of the federation: runs until it is stopped, while the server comes and
    goes.
    """
    from sumus.cli.queue_progress import listed
    from sumus.engines import Kit, Looking, PlanQueue, until_stopped
    from sumus.engines.health import operator_health
    from sumus.parties import ROSTER, read_rosters
    from sumus.service import Signs
    from sumus.watching import FederationWatcher, federation_board

    opened, console = Kit.open(kit, "admin"), screen()
    if units is not None or user is not None:
        told_to = notify_options(notify, alert)
        _write_unit(opened, watch_port, token_file, units, user, told_to)
        return
    signs = Signs.of_environment()
    there = (opened.state / ROSTER).is_file()
    names = read_rosters(opened.state).current.names if there else ()
    board = federation_board("operator", str(opened.address), patience_seconds=120.0)
    operator = opened.engine.operator(opened.path)

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    watcher, queue = FederationWatcher(board, names=names), PlanQueue(opened.queue)

    def look_at_queue() -> None:
        with suppress(StorageError):  # `sumus federation queue list` says what is wrong with it
            watcher.follow.change(queue=listed(queue.entries()))

    try:
        told = looked_out(
            board,
            notify,
            alert,
            party="operator",
            process="watch",
            health=operator_health(opened, Path()),
        )
        with (
            until_stopped() as stopped,
            served(board, port=watch_port, say=say, kept=token_file) as page,
            told,
        ):
            signs.turned(f"live page on port {page.port}", ready=True)
            Looking(operator, watcher, also=look_at_queue).until(stopped, signs)
            signs.stopping()
    finally:
        operator.close()


def _write_unit(
    kit: Kit,
    port: int,
    token_file: Path | None,
    units: Path | None,
    user: str | None,
    more: Sequence[str],
) -> None:
    """The service of a page whose address stays the same: it needs a port and a token of its own."""
    from sumus.engines import write_watch_unit
    from sumus.watching import TOKEN_FILE

    if units is None:
        raise PlanError(
            "--user", user, "is for --units", "Start it as that user: sudo -u NAME sumus …"
        )
    if port == 0:
        raise PlanError(
            "--watch-port", port, "must be given with --units", "For example --watch-port 8765."
        )
    kept = (token_file or kit.state / TOKEN_FILE).resolve()
    options = ["--watch-port", str(port), "--token-file", str(kept), *more]
    typer.echo("\n".join(write_watch_unit(units, kit=kit, user=user, options=options)))


@contextmanager
def watched_training_across(
    wanted: bool,
    *,
    port: int,
    say: Callable[[str], None],
    agreement: Agreement,
    name: str,
    shown: Watch,
    notify: str | None,
    when: Sequence[str] | None,
    kit: Kit | None,
    out: Path,
) -> Iterator[tuple[Watch, FederationWatcher | None]]:
    """Who is told the news of a training across machines: `shown`, and a live page where one is
    wanted, which says in the end how it ended.

    Args:
        say: told where the page is.
        name: of the server.
        notify: a command that is run for alerts; `when`: they are told.
        kit: the operator's; `out`: where run folders go.
    """
    if not wanted and not wants_notices(notify):
        yield shown, None
        return
    from sumus.engines.health import operator_health
    from sumus.watching import FederationWatcher, federation_board

    board = federation_board("operator", name)
    watcher = FederationWatcher(board)
    watcher.agreed(
        agreement.plan,
        agreement.certified,
        names=agreement.names,
        needed=agreement.terms.minimum_survivors,
    )

    listening = [watcher]

    def both(news: Mapping[str, Any]) -> None:
        shown(news)
        for each in listening:
            try:
                each.told(news)
            except Exception as error:  # whoever watches cannot stop a training
                listening.clear()
                say(f"the live page stands still: {type(error).__name__}: {error}")

    page = served(board, port=port, say=say) if wanted else nullcontext()
    health = operator_health(kit, out)
    alerts = looked_out(board, notify, when, party="operator", process="train", health=health)
    with page, alerts:
        try:
            yield both, watcher
        except BaseException as error:
            watcher.failed(str(error), stopped=isinstance(error, KeyboardInterrupt))
            raise


@contextmanager
def watched_server(
    wanted: bool,
    *,
    port: int,
    say: Callable[[str], None],
    kit: Kit,
    notify: str | None,
    when: Sequence[str] | None,
) -> Iterator[Callable[[KeptProcess], None]]:
    """What is told that the server's process is looked after: a live page, where one is wanted. Its
    address stays the same when the server is started again on the same port.

    Args:
        notify: a command that is run for alerts; `when`: they are told.
    """
    if not wanted and not wants_notices(notify):
        yield lambda process: None
        return
    from sumus.engines.health import server_health
    from sumus.engines.watched_server import ServerWatch, server_board
    from sumus.watching import TOKEN_FILE

    board = server_board(kit)
    kept = kit.state / TOKEN_FILE
    page = served(board, port=port, say=say, kept=kept) if wanted else nullcontext()
    health = server_health(kit)
    alerts = looked_out(board, notify, when, party="server", process="start", health=health)
    with page, alerts:
        watch = ServerWatch(kit, board)
        watch.start()
        yield watch.tended
