"""Who may read a live page: whoever knows its token, from a page of its own or from no page at all.

| who wants in | what stands in the way |
|---|---|
| another machine | the listener is on the loopback interface |
| another user of this machine | 256 random bits in the address, compared in constant time |
| a web page that is open in the same browser | the token; no answer lets another origin read it |
| the same page, by a name that it lets point to this machine (DNS rebinding) | the `Host` header |

`/healthz` and `/readyz` answer yes or no to everybody on this machine and say nothing else.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from sumus.errors import StorageError
from sumus.files import read_bytes, replace_atomically
from sumus.randomness import RandomSource

__all__ = ["TOKEN_FILE", "Access", "Request", "kept_token", "new_token"]

TOKEN_FILE = "watch.token"  # noqa: S105 - a name
"""In a kit or a vault: the address of its page stays the same when the process is started again."""
_TOKEN_BYTES = 32
_OPEN = ("healthz", "readyz")


def new_token() -> str:
    """256 random bits, in hexadecimal."""
    return RandomSource().bytes(_TOKEN_BYTES).hex()


def kept_token(path: Path) -> str:
    """The token of a file that only its owner may read, made at the first time."""
    if not path.exists():
        replace_atomically(path, f"{new_token()}\n".encode(), secret=True)
    token = read_bytes(path).decode(errors="replace").strip()
    if len(token) != 2 * _TOKEN_BYTES or not set(token) <= set("0123456789abcdef"):
        raise StorageError(
            f"{path} must hold {2 * _TOKEN_BYTES} hexadecimal digits. Delete it to have a new one."
        )
    if path.stat().st_mode & 0o077:
        raise StorageError(f"{path} can be read by others. Run: chmod 600 {path}")
    return token


@final
@dataclass(frozen=True, kw_only=True)
class Request:
    """The head of a request.

    Args:
        path: as it was sent, with whatever follows a question mark.
        headers: by name in lower case; one that came twice is not among them but in `twice`.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    twice: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, kw_only=True)
class Access:
    """Decides about requests.

    Guarantee: a route other than the two of health is named only for requests that carry the token
        and were sent to this address, by the page itself or by no page.

    Args:
        port: that is listened on.
        token: that readers must know.
    """

    port: int
    token: str = field(repr=False)

    @property
    def hosts(self) -> frozenset[str]:
        """Names of this address; a page that reaches it by another one was sent here by somebody."""
        return frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost"))

    def route(self, request: Request) -> str | int:
        """The name of what is asked for, "" for the page; or the status of a refusal."""
        if not self._is_for_us(request):
            return 403
        if request.method not in ("GET", "HEAD"):
            return 405
        first, _, rest = request.path.partition("?")[0].removeprefix("/").partition("/")
        if first in _OPEN and not rest:
            return first
        if self._knows(first):
            return rest
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._knows(credentials.strip()):
            return request.path.partition("?")[0].removeprefix("/")
        return 404

    def _is_for_us(self, request: Request) -> bool:
        """Whether the request was sent to this address, and not by a page of somebody else's."""
        headers = request.headers
        if {"host", "origin", "sec-fetch-site"} & request.twice:
            return False
        origins = {f"http://{host}" for host in self.hosts}
        return (
            headers.get("host", "").lower() in self.hosts
            and ("origin" not in headers or headers["origin"] in origins)
            and headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        )

    def _knows(self, told: str) -> bool:
        return hmac.compare_digest(told.encode(errors="replace"), self.token.encode())
