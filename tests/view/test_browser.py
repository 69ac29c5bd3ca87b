"""The page in a real browser: nothing wider than the screen, nothing cut off, on a desk and on a
phone, with few regions and with many."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from view.stories import boxes, story

from gearshift.view.report import page
from gearshift.view.story import Story

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
]
LOOK = """
<script>
function look(frame) {
  const root = frame.contentDocument.documentElement;
  const drawings = [...root.querySelectorAll('svg')].map(d => d.getBoundingClientRect());
  const seen = {
    width: root.scrollWidth,
    drawings: drawings.map(d => [d.width, d.height]),
    headings: [...root.querySelectorAll('h2')].map(h => h.textContent),
  };
  document.body.textContent = 'SEEN' + JSON.stringify(seen) + 'END';
}
</script>
"""


def seen(story: Story, folder: Path, width: int) -> dict[str, Any]:
    """What a browser makes of the page in a window so wide."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "tools/system_packages chromium"
    frame = html.escape(page(story), quote=True)
    frame = f'<iframe width={width} height=800 onload="look(this)" srcdoc="{frame}"></iframe>'
    around = folder / "around.html"
    around.write_text(f"<!doctype html>{LOOK}<body style='margin:0'>{frame}</body>")
    command = [browser, *QUIET, f"--user-data-dir={folder / 'profile'}", "--dump-dom", str(around)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search("<body[^>]*>SEEN(.*)END</body>", html.unescape(told.stdout), re.DOTALL)
    assert found, told.stderr
    result: dict[str, Any] = json.loads(found[1])
    return result


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("count", [3, 300])
def test_it_fits_the_screen(count: int, width: int, tmp_path: Path) -> None:
    found = seen(replace(story(), boxes=boxes(count)), tmp_path, width)
    assert found["width"] <= width
    assert {"Latency", "Plan in force", "What was tried"} <= set(found["headings"])
    assert len(found["drawings"]) == 4
    assert all(w > 100 and h > 20 for w, h in found["drawings"])


def test_what_users_name_cannot_widen_or_break_it(tmp_path: Path) -> None:
    found = seen(story(model="a" * 300 + "<b>&"), tmp_path, 390)
    assert found["width"] <= 390
