"""Writes the table of formats into docs/upgrading.md.

python docs/gen_upgrading.py
"""

from __future__ import annotations

from pathlib import Path

from sumus.files import FORMATS
from sumus.secagg import envelope

PAGE = Path(__file__).parent / "upgrading.md"
BEGIN, END = "<!-- formats: begin -->\n", "<!-- formats: end -->"


def table() -> str:
    """A line for every format, and for what is sent."""
    lines = ["| what | where | format | where it says so |", "|---|---|---:|---|"]
    lines += [
        f"| {each.name} | {each.files} | {each.version} | {each.says} |"
        for each in FORMATS.values()
    ]
    lines.append(
        f"| messages | between server and silos | {envelope._VERSION} | the fifth byte of each |"
    )
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the table as the code has it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
