"""Headless Chromium over its debugging pipe: opens a page, collects everything it complains about,
moves the pointer, takes pictures.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--disable-dev-shm-usage",
]

_KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowRight": 39,
}
PAPERS = {"A4": (8.27, 11.69), "Letter": (8.5, 11.0)}
"""Width and height in inches."""


def chromium() -> str | None:
    """The installed browser, if there is one."""
    return next(
        (
            path
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (path := shutil.which(name))
        ),
        None,
    )


class Browser:
    """One page in one browser. Commands go to the browser's descriptor 3, answers and events come
    from its descriptor 4.
    """

    def __init__(self, profile: Path, *flags: str, width: int = 1280, height: int = 900) -> None:
        command_read, self._commands = os.pipe()
        self._events, event_write = os.pipe()
        program = chromium()
        assert program is not None

        def wire() -> None:  # through high numbers: 3 or 4 may be in use by the other pipe
            high_read, high_write = os.dup2(command_read, 103), os.dup2(event_write, 104)
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        arguments = [program, *_FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            arguments, preexec_fn=wire, close_fds=False, stdout=quiet, stderr=quiet
        )
        os.close(command_read)
        os.close(event_write)
        self._buffer, self._number = b"", 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.prefer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._events)

    def open(self, page: Path) -> None:
        """Load a file and wait until it is there."""
        self.visit(page.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Load whatever is at an address and wait until it is there."""
        self._loaded = False
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._receive()

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, *, dark: bool = False, still: bool = False, media: str = "") -> None:
        """What the reader's system asks of pages; no medium: the one that they are shown on."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme, motion])

    def press(self, key: str) -> None:
        """One key, held and let go."""
        known = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        typed = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **known, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def evaluate(self, expression: str, *, awaited: bool = False) -> Any:
        """The value of a JavaScript expression in the page; `awaited`: of the promise that it
        gives.
        """
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=awaited
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point_at(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, *, height: int | None = None) -> bytes:
        """A PNG of the window, or of so much of the page."""
        if height is None:
            return base64.b64decode(self.call("Page.captureScreenshot")["data"])
        width = self.evaluate("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def printed(self, paper: str = "A4") -> bytes:
        """The page as a PDF on a paper."""
        width, height = PAPERS[paper]
        answer = self.call(
            "Page.printToPDF", paperWidth=width, paperHeight=height, printBackground=True
        )
        return base64.b64decode(answer["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, session=self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._events, 1 << 16)
            assert more, "the browser is gone"
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        self._notice(message.get("method", ""), message.get("params", {}))
        return message

    def _notice(self, event: str, details: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(str(details["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append(str(details["args"]))
        elif event == "Log.entryAdded":
            self.complaints.append(details["entry"]["text"])
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {details['message']}")
        elif event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
