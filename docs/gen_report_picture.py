"""Makes docs/figures/report.png: the page of a run on the embedded digits, as a browser shows it.

    python docs/gen_report_picture.py          needs Chromium, trains for some seconds

Every run draws its own noise, so the numbers on the picture differ from time to time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).parent / "figures" / "report.png"
WIDTH, HEIGHT, SCALE, COLOURS = 1120, 1720, 0.65, 200
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def main() -> None:
    """Train, write the page, take its picture."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("Chromium is not installed: the picture stays as it is.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SUMUS_STATE"] = str(folder / "state")
        subprocess.run(
            [sys.executable, "-m", "sumus", "train", "--out", str(folder / "runs")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (page,) = (folder / "runs").glob("*/report.html")
        subprocess.run(
            [
                browser,
                *FLAGS,
                f"--user-data-dir={folder / 'profile'}",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={folder / 'shot.png'}",
                page.as_uri(),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        shrink(folder / "shot.png")
    sys.stdout.write(f"{PICTURE.name}: {PICTURE.stat().st_size / 1000:.0f} kB\n")


def shrink(shot: Path) -> None:
    """Smaller, and with few colours: a page has few."""
    from PIL import Image

    with Image.open(shot) as taken:
        size = (round(taken.width * SCALE), round(taken.height * SCALE))
        small = taken.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        small.quantize(COLOURS, kmeans=4, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
