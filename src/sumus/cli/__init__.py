"""The command line: one table of commands, one place where errors become a line and an exit code.

A command's module is imported only when that command runs, so that `sumus account` neither waits
for torch nor needs it. To add a command:

1. write a module with a `typer.Typer` called `NAME_app` (one `@NAME_app.command()` makes it a plain
   command, several make it a group), or a function called `NAME_command`;
2. add its line to `COMMANDS`: what it does, and its module. A group may be spread over modules of
   several rooms. A line whose module is not installed is left out of the listing.

Older versions of typer work on the click package, newer ones on a copy of their own: nothing here
names either of them.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, final, get_type_hints

import typer
from typer.core import TyperGroup

from sumus.cli.terminal import colour, speak_plainly
from sumus.errors import SumusError
from sumus.files import keep_what_is_loaded

__all__ = ["COMMANDS", "main"]


@final
class Command:
    """A line of the table: what the command does, and the modules that hold it."""

    def __init__(self, help: str, *modules: str) -> None:
        self.help = help
        self.modules = modules

    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.modules[0]) is not None


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "new": Command("a commented plan for a table of your own", "sumus.cli.new"),
        "train": Command(
            "run a federation in this process with the real protocol", "sumus.cli.train"
        ),
        "describe": Command(
            "private statistics of all silos' records, and bounds for the plan",
            "sumus.cli.describe",
        ),
        "plan": Command(
            "noise, modulus, bandwidth and the cost of every algorithm for a target ε",
            "sumus.cli.plan",
        ),
        "account": Command("ε of a plan, or of what a run really released", "sumus.cli.account"),
        "average": Command(
            "average separately trained private models, and the ε of their average",
            "sumus.cli.average",
        ),
        "pretrain": Command(
            "a public start for a network, taught by made-up pictures", "sumus.cli.pretrain"
        ),
        "tune": Command("search hyper-parameters", "sumus.cli.tune"),
        "reproduce": Command(
            "table 1 and the figures of Heikkilä 2025, and the same with proved guarantees",
            "sumus.paper.commands",
        ),
        "audit": Command(
            "measure leakage and check samplers against their declared law",
            "sumus.cli.audit",
            "sumus.cli.evidence",
            "sumus.paper.commands",
        ),
        "federation": Command(
            "serve a federation across machines",
            "sumus.cli.federation",
            "sumus.cli.epochs",
            "sumus.cli.queue",
        ),
        "join": Command("take part in a federation as a silo", "sumus.cli.join"),
        "silo": Command(
            "approve plans for a silo, back its vault up, and see what was handed to it",
            "sumus.cli.silo",
            "sumus.cli.silo_plans",
        ),
        "doctor": Command(
            "is this installation, silo or server well, and what mends it", "sumus.cli.doctor"
        ),
        "predict": Command("what a run's model says of new rows", "sumus.cli.predict"),
        "export": Command("a run's model in a file that other programs read", "sumus.cli.export"),
        "report": Command("one self-contained page about a run", "sumus.cli.report"),
        "history": Command(
            "all runs of a folder over time, and what they spent", "sumus.cli.history"
        ),
        "ledger": Command("privacy spent on a data set across runs", "sumus.cli.ledger"),
        "keys": Command(
            "make and check the long-lived keys of silos and server",
            "sumus.cli.keys",
            "sumus.cli.endorse",
            "sumus.cli.retire",
        ),
        "data": Command("list, check and prepare data sets", "sumus.cli.data"),
    }
)

_EXTRAS = {
    "torch": "train",
    "sklearn": "train",
    "pyarrow": "train",
    "PIL": "train",
    "jinja2": "report",
    "markupsafe": "report",
    "matplotlib": "report",
    "optuna": "report",
    "nvflare": "nvflare",
    "psutil": "nvflare",
    "flwr": "flower",
    "onnx": "export",
    "safetensors": "export",
    "tokenizers": "text",
}

# of click, or of the copy that typer brings
_errors: Any = importlib.import_module(typer.BadParameter.__module__)
# click before 8.2 shows the help itself
_no_arguments: Any = getattr(_errors, "NoArgsIsHelpError", ())


@final
class _Stopped(Exception):  # noqa: N818
    """Ctrl-C, with what the command said about it: typer would swallow the words."""


@final
class _Commands(TyperGroup):
    """Looks a command up by importing its module at the last moment."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, command in COMMANDS.items() if command.is_installed()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        command, *others = [
            typer.main.get_command(_app(importlib.import_module(module), cmd_name))
            for module in COMMANDS[cmd_name].modules
        ]
        nested: dict[str, Any] = getattr(command, "commands", {})
        for other in others:
            nested.update(getattr(other, "commands", {other.name: other}))
        command.name = cmd_name
        _restore_help_of_arguments(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        close = (
            difflib.get_close_matches(args[0], names, n=1) if args and args[0] not in names else []
        )
        if close:  # typer knows only commands that are imported
            raise _errors.UsageError(
                f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx
            )
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        item = importlib.import_module(
            _errors.__name__.replace("exceptions", "shell_completion")
        ).CompletionItem
        return [
            item(name, help=COMMANDS[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Stopped(str(error)) from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(ctx)])


def _app(module: Any, name: str) -> typer.Typer:
    for attribute in (f"{name}_app", "app"):
        if isinstance(app := getattr(module, attribute, None), typer.Typer):
            return app
    app = typer.Typer(add_completion=False)
    app.command()(getattr(module, f"{name}_command"))
    return app


def _restore_help_of_arguments(command: Any) -> None:
    """Typer before 0.21, the newest that Flower allows, sets an argument's help and then lets click
    8.5 clear it.
    """
    hints = (
        get_type_hints(command.callback, include_extras=True)
        if command.callback is not None
        else {}
    )
    for parameter in command.params:
        for annotation in getattr(hints.get(parameter.name or ""), "__metadata__", ()):
            if isinstance(annotation, typer.models.ArgumentInfo):
                parameter.help = annotation.help
    for nested in getattr(command, "commands", {}).values():
        _restore_help_of_arguments(nested)


def _show_version(wanted: bool) -> None:
    if wanted:
        from sumus import __version__

        typer.echo(f"sumus {__version__}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
]


def _root() -> Any:
    app = typer.Typer(
        cls=_Commands,
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def sumus(version: _Version = False) -> None:
        """Cross-silo federated learning with record-level differential privacy and real secure
        aggregation.
        """

    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (2 bad plan or usage, 3 refused guarantee, 4 protocol,
    5 storage, 6 engine).
    """
    if arguments is None:  # a process of its own
        keep_what_is_loaded()
    for stream in (sys.stdout, sys.stderr):
        speak_plainly(stream)
    if "_SUMUS_COMPLETE" in os.environ:  # a shell asks, see `docs/install.md`
        importlib.import_module("typer.completion").completion_init()
    try:
        code = _root().main(
            None if arguments is None else list(arguments), prog_name="sumus", standalone_mode=False
        )
        return code if isinstance(code, int) else 0
    except SumusError as error:
        return _fail(str(error), error, error.exit_code)
    except _no_arguments as error:
        typer.echo(error.format_message(), err=True)
        return 2
    except _errors.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "sumus"
        # click and typer both suggest a command
        message = re.sub(r"(Did you mean \S+\?) \1", r"\1", error.format_message())
        return _fail(
            f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{where} --help`.",
            error,
            2,
        )
    except _errors.ClickException as error:
        return _fail(error.format_message(), error, 2)
    except (_Stopped, KeyboardInterrupt, typer.Abort) as error:
        typer.secho(f"stopped {error}".strip(), fg="red", err=True, color=colour())
        return 130
    except BrokenPipeError:
        # whoever read our output has gone; Python would complain about the unflushed rest
        sys.stderr.close()
        return 141
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            return _unexpected(error)
        return _fail(
            f"this command needs {package}, which is not installed. Run: pip install "
            f"'sumus[{_EXTRAS[package]}]'",
            error,
            2,
        )
    except Exception as error:
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    return _fail(f"{type(error).__name__}: {error} (set SUMUS_TRACEBACK=1 to see where)", error, 1)


def _fail(message: str, error: BaseException, code: int) -> int:
    if "sumus.events.writing" in sys.modules:  # this process has a log
        from sumus.events import ProcessFailed, tell

        tell(ProcessFailed(cause=type(error).__name__))
    if os.environ.get("SUMUS_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    typer.secho(f"error: {' '.join(message.split())}", fg="red", err=True, color=colour())
    return code
