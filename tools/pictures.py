"""Takes the README's pictures: the HTML report of the demo, in both themes.

    python tools/pictures.py

`make pictures` calls it; it needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from selenium import webdriver

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
PROGRAM = "scenarios/three_bugs/broken.py"
SIZE = (1100, 1330)


def main() -> int:
    """Writes one picture a theme; 2 where Chromium is missing."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        print("chromium and chromedriver are missing: make browser", file=sys.stderr)
        return 2
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        command = [sys.executable, "-m", "compilediag", "run", "--quiet", "--html", str(page)]
        command += ["--output", f"{folder}/run", PROGRAM]
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/caches"}  # empty: as at the first start
        environment = {**os.environ, **caches}
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        options.add_argument("--headless=new")
        options.add_argument("--no-sandbox")
        options.add_argument("--hide-scrollbars")
        browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
        try:
            for theme in ("light", "dark"):
                _take(browser, page, theme)
        finally:
            browser.quit()
    return 0


def _take(browser: Any, page: Path, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    file = PICTURES / f"report-{theme}.png"
    browser.get_screenshot_as_file(str(file))
    print(f"Wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
