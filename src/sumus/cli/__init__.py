"""The command line: one table of commands, one place where errors become a line and an exit code.

A command's module is imported only when that command runs, so that `sumus account` neither waits for torch nor needs it. To add a command:

1. write `sumus/cli/NAME.py` with a `typer.Typer` called `NAME_app` (one `@NAME_app.command()` makes it a plain command, several make it a
   group), or a function called `NAME_command`;
2. add its line to `COMMANDS`. A line whose module is not installed is left out of the listing.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, final, get_type_hints

import click
import typer

from sumus.errors import SumusError

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "train": "run a federation in this process with the real protocol",
    "plan": "noise, modulus, bandwidth and the cost of every algorithm for a target ε",
    "account": "ε of a plan, or of what a run really released",
    "average": "average separately trained private models, and the ε of their average",
    "tune": "search hyper-parameters",
    "reproduce": "table 1 and the figures of the paper, and the same with proved guarantees",
    "audit": "measure leakage and check samplers against their declared law",
    "federation": "serve a federation across machines",
    "join": "take part in a federation as a silo",
    "report": "one self-contained page about a run",
    "ledger": "privacy spent on a data set across runs",
    "keys": "make and check the long-lived keys of silos and server",
    "data": "list, check and prepare data sets",
}

_EXTRAS = {"torch": "train", "sklearn": "train", "pyarrow": "train", "plotly": "report", "jinja2": "report", "matplotlib": "report"}
_EXTRAS |= {"optuna": "report", "nvflare": "nvflare", "flwr": "flower"}


@final
class _Commands(click.Group):
    """Looks a command up by importing its module at the last moment."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"sumus.cli.{name}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"sumus.cli.{cmd_name}")
        command = typer.main.get_command(_app(module, cmd_name))
        command.name = cmd_name
        for each in (command, *getattr(command, "commands", {}).values()):
            _restore_help_of_arguments(each)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def _app(module: Any, name: str) -> typer.Typer:
    for attribute in (f"{name}_app", "app"):
        if isinstance(found := getattr(module, attribute, None), typer.Typer):
            return found
    app = typer.Typer(add_completion=False)
    app.command()(getattr(module, f"{name}_command"))
    return app


def _restore_help_of_arguments(command: click.Command) -> None:
    """Typer before 0.21, the newest that Flower allows, sets an argument's help and then lets click 8.5 clear it."""
    hints = get_type_hints(command.callback, include_extras=True) if command.callback is not None else {}
    for parameter in command.params:
        for described in getattr(hints.get(parameter.name or ""), "__metadata__", ()):
            if isinstance(described, typer.models.ArgumentInfo):
                parameter.help = described.help  # type: ignore[attr-defined,unused-ignore]


def _root() -> click.Group:
    def show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            from sumus import __version__

            click.echo(f"sumus {__version__}")
            ctx.exit()

    version = click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version.")
    text = "Cross-silo federated learning with record-level differential privacy and real secure aggregation."
    return _Commands(name="sumus", help=text, params=[version], context_settings={"help_option_names": ["-h", "--help"]})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (2 bad plan or usage, 3 refused guarantee, 4 protocol, 5 storage, 6 engine)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an ε must not crash a terminal that has none
    try:
        code = _root().main(None if arguments is None else list(arguments), prog_name="sumus", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SumusError as error:
        return _fail(str(error), error, error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "sumus"
        message = error.format_message()
        return _fail(f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{where} --help`.", error, 2)
    except click.ClickException as error:
        return _fail(error.format_message(), error, 2)
    except (KeyboardInterrupt, click.Abort) as error:
        told = str(error.__cause__ or "")  # click puts an Abort in the place of what a command said
        click.secho(f"stopped {told}".strip(), fg="red", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; Python would complain about the unflushed rest
        return 141
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            return _unexpected(error)
        return _fail(f"this command needs {package}, which is not installed. Run: pip install 'sumus[{_EXTRAS[package]}]'", error, 2)
    except Exception as error:
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    return _fail(f"{type(error).__name__}: {error} (set SUMUS_TRACEBACK=1 to see where)", error, 1)


def _fail(message: str, error: BaseException, code: int) -> int:
    if os.environ.get("SUMUS_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    click.secho(f"error: {' '.join(message.split())}", fg="red", err=True)
    return code
