"""Writes the last part of docs/protocol.md, which says byte by byte what a silo sends, from the code.

    python docs/gen_protocol.py

Tables of fields are read off the decoders (`_read` of every message), labels off the functions that
hash them, numbers off the constants; a field's meaning stands in the docstring of its message. The
prose around them is below. A decoder that does something this reader has no words for is an error.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from sumus.secagg import (
    envelope,
    epochs,
    graph,
    kem,
    keys,
    messages,
    schedule,
    setup_messages,
    terms,
)
from sumus.secagg.sharing import FIELD_PRIME

PAGE = Path(__file__).with_name("protocol.md")
BEGIN, END = "<!-- bytes: begin -->\n", "<!-- bytes: end -->\n"
HASHING: tuple[ModuleType, ...] = (
    terms,
    keys,
    epochs,
    envelope,
    setup_messages,
    messages,
    schedule,
    graph,
)

Row = tuple[str, str, str]
"""Field, width in bytes, meaning."""

# what a decoder may repeat its reading over, in words
EACH = {"sorted(header.participants - dropped)": "survivor, in order of their numbers"}
# labels that stand outside of a function: what uses them, and what for
CONSTANTS = {
    "envelope._SIGNED": ("signature", "What the signature of a message begins with."),
    "epochs._DOMAIN": ("endorsement", "What a signature under the next roster begins with."),
}


# -- tables of fields


def arguments_of(owner: type) -> dict[str, str]:
    """Field → its line below `Args:` in the docstring."""
    text = textwrap.dedent("    " + (inspect.getdoc(owner) or ""))
    _, _, listed = (inspect.getdoc(owner) or "").partition("Args:\n")
    found: dict[str, str] = {}
    for line in listed.splitlines():
        if match := re.match(r" {4}(\w+): (.*)", line):
            name, found[match[1]] = match[1], match[2]
        elif line.startswith(" " * 8) and found:
            found[name] += " " + line.strip()
        elif line.strip() and not line.startswith(" "):
            break
    return found if text else {}


def constant(node: ast.expr, module: ModuleType) -> str:
    """A width: a number, or a constant of the module."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        value = getattr(module, node.id, None)
        if isinstance(value, int):
            return str(value)
    raise ValueError(f"a width that is neither number nor constant: {ast.unparse(node)}")


def reads(node: ast.expr, module: ModuleType) -> list[str]:
    """The widths that evaluating an expression reads, in order, as text."""
    if isinstance(node, ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [_repeated(node, module)]
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called == "reader.take":
            return [constant(node.args[0], module)]
        if called == "reader.number":
            return [constant(node.args[0], module)]
        if called == "reader.sized":
            return ["8 + length"]
        if called == "reader.bitmap":
            return ["⌈N/8⌉"]
        if called == "RoundHeader.read":
            return ["header"]
        if called == "_read_list":
            return ["2 + for each: 8 + length"]
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            found += reads(child, module)
        elif isinstance(child, ast.keyword):
            found += reads(child.value, module)
    return found


def _repeated(
    node: ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp, module: ModuleType
) -> str:
    over = node.generators[0].iter
    parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    each = " + ".join(width for part in parts for width in reads(part, module))
    counted = reads(over, module)
    if counted:
        return f"{counted[0]} + for each: {each}"
    text = ast.unparse(over)
    if text not in EACH:
        raise ValueError(f"no words for what is read for each of {text}")
    return f"{each} for each {EACH[text]}"


def fields_of(reader: object, owner: type) -> list[Row]:
    """The rows of one message or header, in the order in which its decoder reads them."""
    module = inspect.getmodule(owner)
    assert module is not None
    source = textwrap.dedent(inspect.getsource(reader))  # type: ignore[arg-type]
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.FunctionDef)
    meanings, rows = arguments_of(owner), []
    for name, width in _named(body, module):
        if name not in meanings:
            raise ValueError(f"{owner.__name__}.{name} has no line below Args: in its docstring")
        rows.append((name, width, meanings[name]))
    return rows


def _named(body: ast.FunctionDef, module: ModuleType) -> Iterator[tuple[str, str]]:
    """(field, width) of everything that is read, under the name that it is read into."""
    for statement in body.body:
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(target, ast.Tuple) else [value]  # type: ignore[attr-defined]
            pairs = [(ast.unparse(name), part) for name, part in zip(names, values, strict=True)]
        elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
            pairs = [(word.arg or "", word.value) for word in statement.value.keywords]
        else:
            pairs = []
        for name, part in pairs:
            for width in reads(part, module):
                yield name, width


def table(rows: list[Row], *, first: str = "field") -> str:
    lines = [f"| {first} | bytes | meaning |", "|---|---|---|"]
    lines += [f"| {name} | {width} | {meaning} |" for name, width, meaning in rows]
    return "\n".join(lines)


def message_tables() -> str:
    """Every kind of message, in the order in which they are sent."""
    parts = []
    for number, kind in messages._KINDS.items():
        summary = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        who, _, says = summary.partition(": ")
        rows = fields_of(kind._read.__func__, kind)  # type: ignore[attr-defined]
        bulk = kind.__dict__.get("bulk")
        note = ""
        if kind.has_bulk:
            what = (inspect.getdoc(bulk) or "").rstrip(".").lower()
            note = f"\nThe signature covers {what} as its SHA-256.\n"
        sentence = says[:1].upper() + says[1:].rstrip(".")
        sentence = sentence.replace(". ", ".\n")
        parts.append(
            f"**{kind.__name__}**, kind {number}, {who.lower()}.\n{sentence}.\n{note}\n{table(rows)}\n"
        )
    return "\n".join(parts)


# -- labels


def labels() -> list[tuple[str, str, str]]:
    """(label, where, what for) of every byte string that goes into a hash."""
    found = []
    for module in HASHING:
        tree = ast.parse(inspect.getsource(module))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        # a private function without a docstring does the work of the public one of its name
        documented = {f"_{node.name}": node for node in functions if ast.get_docstring(node)}
        for owner in ast.walk(tree):
            if isinstance(owner, ast.FunctionDef):
                inside = {
                    id(node)
                    for child in ast.walk(owner)
                    if isinstance(child, ast.FunctionDef) and child is not owner
                    for node in ast.walk(child)
                }
                nodes = [node for node in ast.walk(owner) if id(node) not in inside]
                summary = (ast.get_docstring(documented.get(owner.name, owner)) or "").split(
                    "\n\n"
                )[0]
                found += [
                    (label, owner.name.strip("_"), " ".join(summary.split()))
                    for label in _labels_in(nodes)
                ]
            elif isinstance(owner, ast.Assign) and isinstance(owner.value, ast.Constant):
                where = f"{module.__name__.rpartition('.')[2]}.{ast.unparse(owner.targets[0])}"
                found += [(label, *CONSTANTS[where]) for label in _labels_in([owner.value])]
    return sorted(found)


def _labels_in(nodes: list[ast.AST] | list[ast.expr]) -> list[str]:
    return [
        node.value.decode()
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, bytes)
        and re.fullmatch(rb"[a-z][a-z0-9 ]{3,}", node.value)
    ]


def label_table() -> str:
    lines = ["| label | function | what it is for |", "|---|---|---|"]
    lines += [f'| "{label}" | `{where}` | {what} |' for label, where, what in labels()]
    return "\n".join(lines)


def digest_order() -> str:
    """The numbers of the terms in the order in which they are hashed."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(terms.Terms.digest)))
    call = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "struct.pack"
    )
    names = [re.search(r"self\.(\w+)", ast.unparse(part)) for part in call.args[1:]]
    return ", ".join(name[1] for name in names if name)


# -- the page


def render() -> str:
    """The text between the two markers."""
    prose = Path(__file__).with_name("protocol_bytes.txt").read_text(encoding="utf-8")
    header = fields_of(messages.RoundHeader.read.__func__, messages.RoundHeader)  # type: ignore[attr-defined]
    values = {
        "VERSION": str(envelope._VERSION),
        "MAGIC": envelope._MAGIC.decode(),
        "HEAD_BYTES": str(envelope.HEAD_BYTES),
        "SERVER": f"0x{envelope.SERVER:04X}",
        "SIGNED": envelope._SIGNED.decode(),
        "PRIME_GAP": str(2**256 - FIELD_PRIME),
        "KEM_KEY": str(kem.KEM_KEY_BYTES),
        "SALT": str(schedule.SALT_BYTES),
        "TAG": str(schedule.TAG_BYTES),
        "GRAPHS": ", ".join(f"{place} = {name}" for place, name in enumerate(terms._GRAPHS)),
        "SPARSE_FROM": str(terms.SPARSE_FROM),
        "LEAST_COMMITTEE": str(graph.LEAST_COMMITTEE),
        "TERMS": digest_order(),
        "HEADER_TABLE": table(header),
        "MESSAGE_TABLES": message_tables().rstrip(),
        "LABEL_TABLE": label_table(),
    }
    for name, value in values.items():
        if f"{{{name}}}" not in prose:
            raise ValueError(f"the page has no place for {name}")
        prose = prose.replace(f"{{{name}}}", value)
    return prose


def page(text: str) -> str:
    """docs/protocol.md with its last part as the code has it."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + render() + END + rest.partition(END)[2]


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
