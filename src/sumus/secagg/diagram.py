"""The protocol drawn from its own code: which state takes which message, what it sends, and what
comes next.

    python -m sumus.secagg.diagram        prints the two Mermaid diagrams of docs/protocol.md

A state takes a message where a method decodes it, sends one where a method builds it, and goes to
the states that the method's return annotation names. Nothing is declared twice, so the picture
cannot fall behind the code.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from dataclasses import dataclass
from types import ModuleType
from typing import final

from sumus.secagg import messages, server, server_setup, silo, silo_setup

__all__ = ["Step", "render", "steps_of"]


@final
@dataclass(frozen=True)
class Step:
    """One public method of a state that leads somewhere or speaks."""

    state: str
    method: str
    takes: tuple[str, ...]
    sends: tuple[str, ...]
    leads_to: tuple[str, ...]


def _message_kinds() -> dict[str, type[messages.Message]]:
    """The messages by name, in the order in which they are sent."""
    return {kind.__name__: kind for kind in messages._KINDS.values()}


def _calls(function: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Call)]


def _step(
    state: str,
    function: ast.FunctionDef,
    *,
    states: tuple[str, ...],
    kinds: dict[str, type[messages.Message]],
) -> Step:
    """Read one method."""
    takes, sends = [], []
    for call in _calls(function):
        if not isinstance(call.func, ast.Name):
            continue
        if call.func.id == "decode" and isinstance(call.args[1], ast.Name):
            takes.append(call.args[1].id)
        elif call.func.id in kinds:
            sends.append(call.func.id)
    annotation = ast.unparse(function.returns) if function.returns is not None else ""
    named = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    leads_to = tuple(name for name in states if name in named and name != state)
    return Step(state, function.name, tuple(takes), tuple(sends), leads_to)


def steps_of(*modules: ModuleType) -> list[Step]:
    """All steps of the states that some modules export, inherited ones included."""
    kinds = _message_kinds()
    exported = [getattr(module, name) for module in modules for name in sorted(module.__all__)]
    states = tuple(state.__name__ for state in exported if inspect.isclass(state))
    steps = []
    for state in (state for state in exported if inspect.isclass(state)):
        for owner in reversed(state.__mro__[:-1]):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            assert isinstance(tree, ast.ClassDef)  # noqa: S101  the source of a class is a class
            functions = [
                node
                for node in tree.body
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            ]
            steps += [
                _step(state.__name__, function, states=states, kinds=kinds)
                for function in functions
            ]
    speaking = [step for step in steps if step.takes or step.sends or step.leads_to]
    order = list(kinds)
    return sorted(
        speaking,
        key=lambda step: (
            min(map(order.index, step.takes + step.sends), default=len(order)),
            step.state,
        ),
    )


def _state_lines(steps: list[Step]) -> list[str]:
    """Arrows between the states of one side."""
    lines = []
    for step in steps:
        words = [
            step.method,
            *(f"takes {name}" for name in step.takes),
            *(f"sends {name}" for name in step.sends),
        ]
        for target in step.leads_to or (step.state,):
            lines.append(f"    {step.state} --> {target}: {', '.join(words)}")
    return lines


def _sequence_lines() -> list[str]:
    """The messages in order, each from the side that may send it."""
    lines = []
    for name, kind in _message_kinds().items():
        arrow = "V->>S" if kind.from_server else "S->>V"
        first_sentence = " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())
        summary = first_sentence.split(":", 1)[1].split(". ")[0].strip().rstrip(".")
        lines.append(f"    {arrow}: {name}: {summary}")
    return lines


def render() -> str:
    """Both diagrams as Markdown with Mermaid blocks."""
    silo_steps = steps_of(silo_setup, silo)
    server_steps = steps_of(server_setup, server)
    return "\n".join(
        [
            "```mermaid",
            "sequenceDiagram",
            "    participant S as silo",
            "    participant V as server",
            *_sequence_lines(),
            "```",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *_state_lines(silo_steps),
            "```",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *_state_lines(server_steps),
            "```",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(render() + "\n")
