"""Makes docs/figures/live.png and live-phone.png: the operator's page of a federation of real
processes on this machine, in the middle of its run, on a screen and on a phone.

    python docs/gen_live_picture.py            needs Chromium and NVIDIA FLARE, takes a minute or two

Every run draws its own noise, so the numbers on the pictures differ from time to time.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from support.browser import Browser  # noqa: E402

ROUNDS, SHOWN = 60, 42
SIZES = {"live": (1120, 1500, 0.65, False), "live-phone": (360, 1360, 0.8, True)}
"""Name → width, height, scale, dark."""
COLOURS = 160
SETTINGS = (f"federation.rounds={ROUNDS}", "federation.dropouts=1", "evaluation.every=6")


def main() -> None:
    """Train, open the page, take its pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [word for each in SETTINGS for word in ("--set", each)]
        command = [sys.executable, "-m", "sumus", "federation", "train", "--local", "5", "--watch"]
        output = folder / "output.txt"
        with output.open("w") as told:
            process = subprocess.Popen(
                [*command, "--out", str(folder / "runs"), *settings],
                stdout=told,
                stderr=subprocess.STDOUT,
                env=os.environ | {"SUMUS_STATE": str(folder / "state"), "OMP_NUM_THREADS": "1"},
            )
        try:
            address = _address(output, process)
            with Browser(folder / "profile") as browser:
                browser.visit(address)
                while _round(browser) < SHOWN:
                    if process.poll() is not None:
                        sys.exit(output.read_text())
                    time.sleep(0.1)
                for each, size in SIZES.items():
                    _take(browser, each, *size)
        finally:
            process.terminate()
            process.wait()


def _address(output: Path, process: subprocess.Popen[bytes]) -> str:
    while process.poll() is None:
        found = re.search(r"http://\S+", output.read_text())
        if found:
            return found.group()
        time.sleep(0.2)
    sys.exit(output.read_text())


def _round(browser: Browser) -> int:
    told = browser.evaluate("document.getElementById('way').getAttribute('aria-valuenow')")
    return int(told or 0)


def _take(browser: Browser, name: str, width: int, height: int, scale: float, dark: bool) -> None:
    """Smaller, and with few colours: a page has few."""
    from PIL import Image

    browser.prefer(dark=dark)
    browser.resize(width, height)
    time.sleep(0.5)
    with Image.open(io.BytesIO(browser.picture())) as taken:
        size = (round(taken.width * scale), round(taken.height * scale))
        small = taken.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        path = HERE / "figures" / f"{name}.png"
        small.quantize(COLOURS, kmeans=4, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(f"{path.name}: {path.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
