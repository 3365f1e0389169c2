"""The readme of a kit, written when all else is in it: what is there, what is secret, what to do
next, and where things lie afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from sumus.engines.engine import Address
from sumus.engines.key_files import TRANSPORT_KEY
from sumus.engines.kit import ADMIN, README, SERVER, SERVER_KEY, STATE_FOLDER
from sumus.secagg import Roster

__all__ = ["readme_of", "write_readme"]

_SECRET = "SECRET  "  # noqa: S105 - a mark
_ABOUT: Mapping[str, str] = {
    README: "this page",
    "kit.toml": "whose kit it is, which engine carries it, where the server is",
    f"{STATE_FOLDER}/roster.toml": "who is who in the secure sum",
    f"{STATE_FOLDER}/plan.toml": "the plan that the coordinator proposes",
    f"{STATE_FOLDER}/{SERVER_KEY}": f"{_SECRET}the key that the server signs with",
    f"{STATE_FOLDER}/identity.key": (
        f"{_SECRET}the silo's key, made by the coordinator: a trial; `sumus join` moves it into the "
        "vault"
    ),
    "startup/*.key": f"{_SECRET}the key of the TLS connection",
    "startup/*.crt": "the certificate of this party",
    "startup/rootCA.pem": "the authority that certified all parties",
    "startup": "of the engine; its own scripts leave the party open, do not use them",
    "local": "of the engine: what it allows here",
    "transfer": "of the engine, empty",
    "ca.crt": "the authority that certified the server",
    "server.crt": "the certificate of the server",
    "server.key": f"{_SECRET}the key of the TLS connection",
    "node": f"{_SECRET}the key by which the server knows this silo's connection",
    "node.pub": "its public half",
    "nodes": "public keys of the silos' connections",
}
"""By path, or by folder for what has no line of its own; a pattern names the files that fit."""


def write_readme(kit: Path, *, party: str, engine: str, address: Address, roster: Roster) -> None:
    """Describe a kit as it is on the disk."""
    text = readme_of(kit, party=party, engine=engine, address=address, roster=roster)
    (kit / README).write_text(text)


def readme_of(kit: Path, *, party: str, engine: str, address: Address, roster: Roster) -> str:
    """The readme's text."""
    whose = party if party in (SERVER, ADMIN) else f"silo {party}"
    digest = roster.digest().hex()
    groups = " ".join(digest[start : start + 8] for start in range(0, len(digest), 8))
    sections = {
        "What is in it": _contents(kit, party),
        "What to do": _steps(kit, party),
        "Where things lie afterwards": _places(party, digest),
    }
    head = [
        f"Sumus: kit of {whose}, for the federation of the server {address} over {engine}",
        "",
        "Fingerprint of the roster when this kit was made, to be compared by telephone:",
        f"  {groups}",
    ]
    body = [line for title, lines in sections.items() for line in ("", title, "", *lines)]
    return "\n".join([*head, *body, ""])


def _contents(kit: Path, party: str) -> list[str]:
    lines: dict[str, str] = {README: _ABOUT[README]}
    for path in sorted(kit.rglob("*")):
        name = path.relative_to(kit).as_posix()
        about = next((words for known, words in _ABOUT.items() if fnmatch(name, known)), None)
        folder = name.partition("/")[0]
        if about is not None:
            lines[name] = about
        elif path.is_file() and folder in _ABOUT:
            lines[folder] = _ABOUT[folder]
    secret = any(words.startswith(_SECRET) for words in lines.values())
    if secret:
        last = (
            f"Whoever has a file that is marked {_SECRET.strip()} can connect or sign as this party: "
            "pass the kit on as you would a password, and keep it readable for its own user only."
        )
    elif _lacks_transport_key(kit):
        last = f"Nothing in it is secret as it came; {party}{TRANSPORT_KEY} will be put into it."
    else:
        last = "Nothing in it is secret."
    return [*_listed(lines), "", last]


def _lacks_transport_key(kit: Path) -> bool:
    """Whether the party made the key of its certificate itself."""
    certificates = (kit / "startup").glob("*.crt")
    return any(not path.with_suffix(".key").exists() for path in certificates)


def _steps(kit: Path, party: str) -> list[str]:
    plan = f"{party}/{STATE_FOLDER}/plan.toml"
    named = plan if (kit / STATE_FOLDER / "plan.toml").exists() else "PLAN"
    steps: dict[str, Sequence[str]]
    if party == SERVER:
        steps = _server_steps(kit)
    elif party == ADMIN:
        steps = {
            "See who is connected:": ["sumus federation status --kit admin"],
            "Train, and look on:": [
                f"sumus federation train {named} --kit admin",
                "sumus federation watch --kit admin",
            ],
        }
    else:
        steps = _silo_steps(kit, party, named)
    lines = [line for title, commands in steps.items() for line in _step(title, commands)]
    return ["All commands are for the folder that holds this one.", "", *lines[:-1]]


def _server_steps(kit: Path) -> dict[str, Sequence[str]]:
    start = "sumus federation start server"
    if _lacks_transport_key(kit):
        start += f" --tls-key {SERVER}{TRANSPORT_KEY}"
    own = f"{SERVER}/{STATE_FOLDER}/{SERVER_KEY}"
    copied = {"Put the key there that you have made:": [f"install -m 600 {SERVER_KEY} {own}"]}
    return {
        **({} if (kit / STATE_FOLDER / SERVER_KEY).exists() else copied),
        "Serve, in the foreground or as a service:": [
            start,
            f"{start} --units units --user sumus-server",
        ],
        "Look whether all is well:": ["sumus doctor server"],
    }


def _silo_steps(kit: Path, party: str, plan: str) -> dict[str, Sequence[str]]:
    trial = (kit / STATE_FOLDER / "identity.key").exists()
    key = "" if trial else f" --identity {party}.key"
    join = f"sumus join {party}{key} --data DATA --policy POLICY --plan {plan}"
    transport = f", with {party}{TRANSPORT_KEY} beside it," if _lacks_transport_key(kit) else ""
    beside = "" if trial else f" {party}.key{transport} is yours;"
    return {
        "Read the plan, and see what you would agree to; it writes nothing. DATA is your file of "
        f"records,{beside} POLICY your own rules, which may be an empty file for this look:": [
            f"{join} --check"
        ],
        "Compare the fingerprint with the other silos, put the line that the look has printed into "
        "POLICY, and join, in the foreground or as two services of two users:": [
            join,
            f"{join} --units units --user sumus-relay",
        ],
        "Look whether all is well:": [f"sumus doctor {party}"],
    }


def _step(title: str, commands: Sequence[str]) -> list[str]:
    return [title, *(f"    {command}" for command in commands), ""]


def _places(party: str, digest: str) -> list[str]:
    if party == SERVER:
        return _listed(
            {
                "server/sumus/runs": "every run: journal, model, evidence",
                "server/sumus/audit.jsonl": "the audit trail",
                "server/server.log": "the log",
            }
        )
    if party == ADMIN:
        return _listed({"runs": "every run that was trained, in the folder where it was started"})
    state = "~/.local/state/sumus"
    vault = f"{state}/silos/{digest[:16]}/{party}"
    return [
        *_listed(
            {
                vault: f"{_SECRET}the vault: key, policy, approved plans, memory of rounds",
                f"{vault}/audit.jsonl": "the audit trail",
                f"{vault}/refusals.log": "what was refused, and why",
                f"{state}/ledger-NAME.jsonl": "the ledger: what was ever released from the records",
            }
        ),
        "",
        f"Where SUMUS_STATE names a folder, it takes the place of {state}.",
        f"Back the vault up with `sumus silo backup {party} FILE`, never by copying files.",
    ]


def _listed(lines: Mapping[str, str]) -> list[str]:
    width = max(map(len, lines))
    return [f"  {name:<{width}}  {words}" for name, words in lines.items()]
