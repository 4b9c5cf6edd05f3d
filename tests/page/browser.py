"""A real Chromium and a real server, for the tests of the page.

    RUNNEL=build/release/runnel build/page/bin/python -m unittest discover -s tests/page -p '*_test.py'

Run by ctest (page.browser) for `make test-page`, which installs the browser. With RUNNEL_PAGE_FILES=server/web/page the
browser takes the page from that folder and not from the program, so a change of the page can be tried without a build.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = os.environ.get("RUNNEL") or str(ROOT / "build/release/runnel")
PAGE_FILES = os.environ.get("RUNNEL_PAGE_FILES")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PICTURES = "mnist-small"
TEXT = "text-small"
ENDLESS = "text-endless-small"  # has no longest text: what takes long is done with it
SHEET = "section:has(h2:text-is('Draw')) .picture canvas"
COMPLETED = "section:has(h2:text-is('Finish a drawing')) .picture canvas"
SESSION = ".pad-and-sheet .drawing canvas"
PAD = ".pad canvas"
SIDE = 28
MANY = 1_000_000  # values, so that a test has the time to stop them
# Seconds until what must come counts as never coming. A few would do on a machine that does nothing else.
PATIENCE = 300
TEMPLATE = """\
{%- for m in messages -%}
{{- {'system': 'System', 'user': 'User', 'assistant': 'Assistant'}[m.role] + ': ' + m.content + '\\n\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}
"""


def eventually(holds: Callable[[], Any], what: str = "") -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {PATIENCE} s: {what}")
        time.sleep(0.05)


class Server:
    """`runnel serve` of small models of the zoo, on a port that it keeps when it is started again."""

    def __init__(
        self, *flags: str, models: tuple[str, ...] = (PICTURES, TEXT), rewind: bool = True, sessions: int = 64
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.port = 0  # any that is free
        self.command = [RUNNEL, "serve", *(self.path_of(model) for model in models), "--address", "127.0.0.1:0"]
        self.command += ["--sessions", str(sessions), *flags]
        if rewind:
            self.command += ["--rewind", "256,32"]
        self.start()

    def path_of(self, model: str) -> str:
        """The argument of `runnel serve` for a model of the zoo, for NAME=PATH in the checkout, or for "talk"."""
        if "=" in model:
            name, path = model.split("=")
            return f"{name}={ROOT / path}"
        if model != "talk":
            return str(ROOT / "zoo" / model)
        bundle = pathlib.Path(self.folder.name) / model
        shutil.copytree(ROOT / "zoo" / ENDLESS, bundle, dirs_exist_ok=True)
        (bundle / "chat_template.jinja").write_text(TEMPLATE)
        return f"talk={bundle}"

    def start(self) -> None:
        log = pathlib.Path(self.folder.name) / "log"
        with log.open("w") as out:
            command = [*self.command, "--http-address", f"127.0.0.1:{self.port}"]
            self.process = subprocess.Popen(command, stderr=out)
        eventually(lambda: " ready " in log.read_text() or self.process.poll() is not None, "ready")
        if self.process.poll() is not None:
            raise AssertionError(log.read_text())
        [port] = re.findall(r" http address=127\.0\.0\.1:(\d+)", log.read_text())
        self.port, self.url = int(port), f"http://127.0.0.1:{port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        self.folder.cleanup()

    def cpu_seconds(self) -> float:
        """Processor time that the server has used, in user and kernel mode."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connections(self) -> int:
        """HTTP connections that are open, by the kernel's table."""
        remote = f"0100007F:{self.port:04X}"
        lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        return sum(line.split()[2] == remote and line.split()[3] == "01" for line in lines)


def take_page_from(folder: pathlib.Path, context: BrowserContext, server: Server) -> None:
    """Has the browser take the page's files from `folder`, with the headers that the server sends for them."""
    with urllib.request.urlopen(server.url, timeout=PATIENCE) as answer:
        headers = {name: answer.headers[name] for name in ("Content-Security-Policy", "X-Content-Type-Options")}

    def answer_with(name: str, route: Route) -> None:
        file = folder / name
        kind = f"{TYPES[file.suffix]}; charset=utf-8"
        route.fulfill(body=file.read_bytes(), headers={**headers, "Content-Type": kind})

    context.route(server.url + "/", lambda route: answer_with("index.html", route))
    context.route(server.url + "/page/*", lambda route: answer_with(route.request.url.rsplit("/", 1)[1], route))


class BrowserTest(unittest.TestCase):
    """One browser; each test has a window of its own, whose requests and errors are watched."""

    browser: Browser

    @classmethod
    def setUpClass(cls) -> None:
        playwright = sync_playwright().start()
        cls.addClassCleanup(playwright.stop)
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        cls.browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def serve(cls, *flags: str, **options: Any) -> Server:
        server = Server(*flags, **options)
        cls.addClassCleanup(server.stop)
        return server

    @contextlib.contextmanager
    def window(
        self, server: Server, width: int = 1440, may_violate: bool = False, models: int = 1, **options: Any
    ) -> Iterator[Page]:
        context = self.browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE * 1000)
        if PAGE_FILES:
            take_page_from(pathlib.Path(PAGE_FILES), context, server)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security" in said.text else None)
        page.on("request", lambda asked: None if self.is_ours(asked.url, server) else faults.append(asked.url))
        try:
            page.goto(server.url)
            if models > 0:
                page.locator(".model").first.wait_for()
            yield page
            if not may_violate:
                self.assertEqual(faults, [])
        finally:
            context.close()

    @staticmethod
    def is_ours(url: str, server: Server) -> bool:
        return url.startswith((server.url + "/", "blob:" + server.url))

    def press(self, place: Locator) -> None:
        """Clicks. The tests of a phone tap instead."""
        place.click()

    def press_button(self, page: Page, name: str) -> None:
        self.press(page.get_by_role("button", name=name, exact=True).first)

    def choose(self, page: Page, model: str) -> None:
        page.get_by_role("radio", name=re.compile(f"^{model}")).check()

    def settings(self, page: Page, **values: str) -> None:
        for name, value in values.items():
            page.locator("section", has=page.get_by_role("heading", name="Write")).get_by_label(
                name.replace("_", "-").capitalize(), exact=True
            ).fill(value)

    def write(self, page: Page, prompt: str = "The river was ", values: int = 40) -> str:
        """Has the model write, and gives the text that the page shows."""
        page.get_by_label("Text to read first").fill(prompt)
        self.settings(page, values=str(values), seed="7")
        self.press_button(page, "Write")
        self.wait_for_text(page, len(prompt) + values)
        return self.text(page)

    def write_and_stop(self, page: Page, button: str) -> None:
        """Has the model write a short text, and then a long one by this button, which is stopped."""
        self.write(page, values=5)
        self.settings(page, values=str(MANY))
        self.press_button(page, button)
        eventually(lambda: len(self.text(page)) > 60, "a part")
        self.press_button(page, "Stop")
        eventually(lambda: self.is_idle(page), "the stop")

    def fork(self, page: Page, position: int, values: int = 40) -> None:
        """Forks the text at the token that was pressed, and continues the new branch."""
        self.press_button(page, "Fork here")
        self.wait_for_text(page, position)
        self.press_button(page, "Continue")
        self.wait_for_text(page, position + values)

    def go_back_and_compare(self, page: Page) -> None:
        """Goes back to position 20, continues from another token at 18, and compares two branches."""
        self.press(page.locator(".token").nth(20))
        self.press_button(page, "Go back to here")
        self.wait_for_text(page, 20)
        self.press(page.locator(".token").nth(18))
        self.press(page.locator(".alternatives button").nth(3))
        self.wait_for_text(page, 18 + 40)
        self.press(page.get_by_text("Compare two branches"))
        self.assertIn("alike", page.locator(".compare").inner_text())

    def write_values(self, page: Page, prompt: str, values: int) -> list[str]:
        """Has a model without text continue these values, and gives all values that the page shows."""
        page.get_by_label("Values to read first").fill(prompt)
        self.settings(page, values=str(values), seed="7")
        before = self.values(page)
        page.get_by_role("button", name="Write", exact=True).click()
        eventually(lambda: self.is_idle(page) and self.values(page) != before, f"{values} more values")
        return self.values(page)

    def values(self, page: Page) -> list[str]:
        return self.text(page).split()

    def wait_for_text(self, page: Page, size: int) -> None:
        eventually(lambda: len(self.text(page)) == size and self.is_idle(page), f"{size} values")

    def text(self, page: Page) -> str:
        return str(page.locator(".write .tokens").evaluate("e => e.textContent"))

    def is_idle(self, page: Page) -> bool:
        return page.get_by_role("button", name="Write", exact=True).is_enabled()

    def pixels(self, page: Page, selector: str) -> list[list[int]]:
        """The grey values of each canvas; -1 where nothing is drawn."""
        return page.locator(selector).evaluate_all(
            """all => all.map(c => {
              const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
              return Array.from({length: d.length / 4}, (_, i) => d[4 * i + 3] === 255 ? d[4 * i] : -1);
            })"""
        )

    def wait_until_drawn(self, page: Page, selector: str, count: int) -> list[list[int]]:
        def done() -> bool:
            pictures = self.pixels(page, selector)
            return len(pictures) == count and all(min(picture) >= 0 for picture in pictures)

        eventually(done, f"{count} pictures of {selector}")
        return self.pixels(page, selector)
