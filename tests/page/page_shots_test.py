"""Takes the pictures of docs/page.md.

`make test-page` leaves them in build/page/pictures; RUNNEL_PAGE_PICTURES=docs/images renews those of the docs.
"""

from __future__ import annotations

import os
import pathlib
import unittest

from browser import COMPLETED, ROOT, SESSION, SHEET, SIDE, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Page

SHOTS = pathlib.Path(os.environ.get("RUNNEL_PAGE_PICTURES") or ROOT / "build/page/pictures")
MOST_BYTES = 150 << 10


class Shots(BrowserTest):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve()
        SHOTS.mkdir(parents=True, exist_ok=True)

    def shoot(self, page: Page, name: str, height: int, width: int = 1180, top: str = "header") -> None:
        """Takes the page from the element `top` on."""
        page.set_viewport_size({"width": width, "height": height})
        page.locator(top).first.evaluate("e => scrollTo(0, e.offsetTop - 12)")
        page.wait_for_timeout(2500)
        file = SHOTS / f"{name}.png"
        page.screenshot(path=file)
        self.assertLess(file.stat().st_size, MOST_BYTES)

    def test_pictures(self) -> None:
        with self.window(self.server, width=1180, color_scheme="light") as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.get_by_label("Seed").first.fill("7")
            page.get_by_role("button", name="Draw", exact=True).click()
            self.wait_until_drawn(page, SHEET, 16)
            page.locator(".picture").nth(4).click()
            self.wait_until_drawn(page, COMPLETED, 6)
            self.draw_and_fork(page)
            self.shoot(page, "page-pictures", 1180)
            state = SHOTS / "page-state.png"
            page.locator("section", has=page.get_by_role("heading", name="State")).screenshot(path=state)
            self.assertLess(state.stat().st_size, MOST_BYTES)

    def draw_and_fork(self, page: Page) -> None:
        """A picture of eight rows, drawn to its end twice."""
        page.get_by_label("Watch while it runs").check()
        page.locator(".pad-and-sheet").get_by_label("Seed").last.fill("7")
        page.get_by_role("button", name="New picture").click()
        page.get_by_role("button", name="Draw to the end").click()
        self.wait_until_drawn(page, SESSION, 1)
        page.get_by_role("slider", name="After row").fill("12")
        page.get_by_role("button", name="Fork here").click()
        eventually(lambda: f"B {12 * SIDE} values" in page.locator(".branches").inner_text(), "a fork")
        page.locator(".pad-and-sheet").get_by_label("Seed").last.fill("8")
        page.get_by_role("button", name="Draw to the end").click()
        self.wait_until_drawn(page, SESSION, 1)

    def test_text(self) -> None:
        with self.window(self.server, width=1180, color_scheme="dark") as page:
            self.choose(page, TEXT)
            page.get_by_label("Watch while it runs").check()
            self.write(page, values=120)
            page.locator(".token").nth(60).click()
            page.get_by_role("button", name="Fork here").click()
            self.wait_for_text(page, 60)
            self.settings(page, seed="11")
            page.get_by_role("button", name="Continue", exact=True).click()
            self.wait_for_text(page, 180)
            page.locator(".token").nth(60).click()
            self.shoot(page, "page-text", 1160, 1080, "section:has(h2:text-is('Write'))")


if __name__ == "__main__":
    unittest.main()
