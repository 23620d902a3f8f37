"""Pages in a real Chromium without a network: nothing on the console, keyboard, contrast, size."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilediag.compare.diff import compare
from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.offline.html_file import load_assets
from compilediag.timeline.invocations import Step
from compilediag.views.diff import show_comparison
from compilediag.views.html.page import render_overview
from compilediag.views.html.report import (
    ReportSources,
    SessionTest,
    build_session_page,
    build_step_series,
    render_report,
)
from compilediag.views.style import RenderOptions

ROOT = Path(__file__).resolve().parents[2]
VIEWS = ROOT / "tests" / "data" / "views"
AXE = ROOT / ".browser" / "axe-core-4.10.3.tgz"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs Debian's chromium and chromium-driver: make browser",
    ),
    # One browser for all.
    pytest.mark.xdist_group("browser"),
]
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><svg onload=alert(1)>"


def receipt(name: str) -> Receipt:
    """A recorded receipt."""
    return read_receipt(VIEWS / f"{name}.json")


def hostile() -> Receipt:
    """Every text of it is markup."""
    raw = json.loads((VIEWS / "findings.json").read_text(encoding="utf-8"))
    keep = ("schema", "version", "status", "verdict", "severity", "kind", "receipt_id", "id")

    def spoiled(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoiled(each, name) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list):
            return [spoiled(each, key) for each in value]  # pyright: ignore[reportUnknownVariableType]
        plain = not isinstance(value, str) or any(word in key for word in keep)
        return value if plain or key.endswith("_utc") else f"{value}{HOSTILE}"

    return msgspec.convert(spoiled(raw), Receipt)


def report(found: Receipt, steps: int = 60) -> str:
    """A page with a chart."""
    every = [
        Step(0, n, float(n), 1.0 if n % 500 == 1 else 0.01, None, None, None, 0.0, forward_s=0.005)
        for n in range(steps)
    ]
    raw = json.dumps(msgspec.to_builtins(found), indent=1)
    lines = {1: "vscode://file/home/you/model.py:13"}
    series = build_step_series(every, found)
    return render_report(found, ReportSources(series, raw, "a.html", lines), load_assets())


def with_ids(found: Receipt) -> Receipt:
    """Its causes name the first finding, as those of newer receipts do."""
    events = [
        msgspec.structs.replace(
            event, causes=tuple(msgspec.structs.replace(c, finding="F1") for c in event.causes)
        )
        for event in found.compile.events
    ]
    compiled = msgspec.structs.replace(found.compile, events=tuple(events))
    return msgspec.structs.replace(found, compile=compiled)


def pages() -> dict[str, str]:
    """Every kind of page."""
    names = ("findings", "clean", "blind", "killed", "many", "breaks")
    made = {name: report(receipt(name)) for name in names}
    made["hostile"] = report(hostile())
    found = compare(receipt("findings"), receipt("many"))
    made["diff"] = render_overview(show_comparison(found, RenderOptions()), load_assets())
    tests = [SessionTest(name, receipt(name), name == "many", "a.html") for name in names]
    made["session"] = render_overview(build_session_page(tests, RenderOptions()), load_assets())
    made["long"] = report(receipt("findings"), 10_000)
    return made


class Browser:
    """Chromium, by its driver."""

    def __init__(self) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=str(DRIVER))
        self.driver: Any = webdriver.Chrome(options=options, service=service)

    def open(self, text: str, folder: Path) -> None:
        """Shows a page, without a network."""
        file = folder / "page.html"
        file.write_text(text, encoding="utf-8")
        self.driver.set_network_conditions(offline=True, latency=0, throughput=0)
        self.driver.get(file.as_uri())

    def run(self, script: str, *values: object) -> Any:
        """What a function's body returns."""
        return self.driver.execute_script(script, *values)

    def console(self) -> list[str]:
        """Its messages since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def press(self, *keys: str) -> None:
        """Keys, to what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def theme(self, name: str) -> None:
        """Which colours the reader prefers."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    pytest.importorskip("selenium")
    made = Browser()
    yield made
    made.driver.quit()


@pytest.mark.parametrize("name", list(pages()))
def test_the_console_stays_empty(name: str, browser: Browser, tmp_path: Path) -> None:
    """No error, no refusal by the policy, nothing fetched."""
    browser.open(pages()[name], tmp_path)
    assert browser.console() == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.driver.title != "owned"
    assert browser.run("return document.images.length") == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["findings", "many", "breaks", "diff", "session", "long"])
def test_axe_finds_nothing(name: str, theme: str, browser: Browser, tmp_path: Path) -> None:
    """WCAG 2 A and AA, as axe-core checks them."""
    if not AXE.is_file():
        pytest.skip("needs axe-core: make browser")
    with tarfile.open(AXE) as archive:
        member = archive.extractfile("package/axe.min.js")
        axe = member.read().decode("utf-8")
    browser.theme(theme)
    browser.open(pages()[name], tmp_path)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    # The policy forbids scripts of the page only; what a driver runs is no part of it.
    browser.run(axe)
    found = browser.driver.execute_async_script(
        "const done = arguments[0];"
        "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'best-practice']}).then((result) =>"
        " done(result.violations.map((each) =>"
        " [each.id, each.help, each.nodes.map((node) => node.html.slice(0, 200))])));"
    )
    assert found == []


def test_the_keyboard_goes_from_step_to_finding(browser: Browser, tmp_path: Path) -> None:
    """Along the steps, from compile to compile, into the finding and back."""
    from selenium.webdriver.common.keys import Keys

    found = with_ids(receipt("findings"))
    browser.open(report(found), tmp_path)
    browser.run("document.getElementById('chart').focus()")
    read = "return document.getElementById('readout').textContent"
    browser.press(Keys.HOME)
    assert browser.run(read).startswith("step 0: ")
    browser.press(Keys.ARROW_RIGHT)
    assert browser.run(read).startswith("step 1: ")
    marked = sorted({event.step for event in found.compile.events if event.causes and event.step})
    browser.press(Keys.HOME)
    for _ in range(20):
        if "(finding " in browser.run(read):
            break
        browser.press(Keys.SHIFT, Keys.ARROW_RIGHT)
        browser.press(Keys.NULL)
    shown = browser.run(read)
    assert any(f"step {step}, recompile of forward" in shown for step in marked)
    browser.press(Keys.ENTER)
    number = shown.partition("(finding ")[2].partition(")")[0]
    assert browser.run("return document.activeElement.id") == f"finding-{number}"


def test_tab_reaches_everything_in_order(browser: Browser, tmp_path: Path) -> None:
    """From the skip link through the page, and no key is caught."""
    from selenium.webdriver.common.keys import Keys

    browser.open(report(receipt("findings")), tmp_path)
    seen: list[int] = []
    for _ in range(40):
        browser.press(Keys.TAB)
        seen.append(
            browser.run(
                "return [...document.querySelectorAll('*')].indexOf(document.activeElement)"
            )
        )
    assert (
        browser.run("return document.querySelectorAll('*')[arguments[0]].className", seen[0])
        == "skip"
    )
    end = next((at for at in range(1, len(seen)) if seen[at] < seen[at - 1]), len(seen))
    assert end > 15
    assert len(set(seen[:end])) == end


def test_zoom_and_narrow_screens(browser: Browser, tmp_path: Path) -> None:
    """What the buttons do, and that nothing is wider than a telephone."""
    from selenium.webdriver.support.wait import WebDriverWait

    browser.open(report(receipt("findings")), tmp_path)
    browser.run("document.getElementById('all').click()")
    browser.driver.set_window_size(400, 900)
    try:
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        # The chart is drawn anew for the new size, a moment after it.
        WebDriverWait(browser.driver, 30).until(lambda _: browser.run(wide) <= 0)
    finally:
        browser.driver.set_window_size(1200, 900)
    assert browser.console() == []


def test_a_long_run_is_drawn(browser: Browser, tmp_path: Path) -> None:
    """100,000 steps: the chart has them all in the columns of a screen."""
    browser.open(report(receipt("many"), steps=100_000), tmp_path)
    assert browser.run("return document.querySelectorAll('#chart canvas').length") == 1
    assert (
        browser.run("return JSON.parse(document.getElementById('data').textContent).steps.length")
        <= 2000
    )
    assert browser.console() == []


def test_without_a_script_all_is_there(browser: Browser, tmp_path: Path) -> None:
    """The tables and the findings; the buttons, which would do nothing, are not."""
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(report(receipt("findings")), tmp_path)
        shown = browser.driver.find_element("tag name", "body").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "Findings" in shown
    assert "CD103" in shown
    assert "All steps" not in shown
