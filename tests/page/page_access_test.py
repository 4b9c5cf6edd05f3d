"""The page without a mouse, with a screen reader, on a phone, in the dark and without motion."""

from __future__ import annotations

import pathlib
import unittest

import axe_playwright_python
from browser import COMPLETED, SHEET, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Page

AXE = pathlib.Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()


class Everybody(BrowserTest):
    """Without a mouse, with a screen reader, on a phone, in the dark, without motion."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve(models=("mnist-small", TEXT, "talk"))

    def assert_accessible(self, page: Page, where: str) -> None:
        page.evaluate(AXE)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations', 'incomplete']})")
        faults = [
            (f["id"], [node["html"][:200] + node["failureSummary"] for node in f["nodes"]]) for f in found["violations"]
        ]
        self.assertEqual(faults, [], where)

    def assert_fits(self, page: Page, width: int) -> None:
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
        small = page.locator("button:visible, select:visible, summary:visible").evaluate_all(
            "all => all.filter(e => e.getBoundingClientRect().height < 24).map(e => e.textContent)"
        )
        self.assertEqual(small, [])

    def test_axe_finds_no_violation(self) -> None:
        for scheme in ("light", "dark"):
            for width in (360, 1440):
                where = f"{scheme}, {width} pixels"
                with self.subTest(where), self.window(self.server, width=width, color_scheme=scheme) as page:
                    self.wait_until_drawn(page, COMPLETED, 6)
                    page.get_by_role("button", name="New picture").click()
                    page.get_by_role("button", name="Look at the state").click()
                    page.locator("canvas.matrix").first.wait_for()
                    self.assert_accessible(page, where + ", pictures")
                    self.assert_fits(page, width)
                    self.choose(page, "talk")
                    page.get_by_label("Your message", exact=True).fill("The river was ")
                    page.keyboard.press("Enter")
                    page.get_by_role("button", name="Retry").click()
                    page.get_by_role("button", name="Version before").wait_for()
                    self.assert_accessible(page, where + ", chat")
                    self.assert_fits(page, width)
                    self.choose(page, TEXT)
                    page.get_by_label("Watch while it runs").check()
                    self.write(page)
                    page.locator(".token").nth(30).click()
                    page.get_by_role("button", name="Fork here").click()
                    self.wait_for_text(page, 30)
                    page.get_by_text("Compare two branches").click()
                    self.assert_accessible(page, where + ", text")
                    self.assert_fits(page, width)

    def test_landmarks_and_names_are_there(self) -> None:
        with self.window(self.server) as page:
            for role in ("banner", "main", "contentinfo"):
                self.assertEqual(page.get_by_role(role).count(), 1)
            for name in ("The server now", "Models", "Draw", "Finish a drawing", "Sessions", "State"):
                self.assertEqual(page.get_by_role("region", name=name, exact=True).count(), 1, name)
            self.assertEqual(page.get_by_role("heading", level=1).inner_text(), "runnel")

    def test_keys_alone_are_enough(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.keyboard.press("Tab")
            self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
            page.keyboard.press("Enter")
            self.go_to(page, "mnist-small")
            while page.evaluate("document.activeElement.value") != TEXT:
                page.keyboard.press("ArrowDown")
            self.go_to(page, "Text to read first")
            page.keyboard.press("Control+a")
            page.keyboard.type("Once ")
            self.go_to(page, "Write")
            page.keyboard.press("Enter")
            self.wait_for_text(page, 125)
            self.go_to(page, "Token")
            for _ in range(8):
                page.keyboard.press("ArrowRight")
            self.assertIn("position 9", page.evaluate("document.activeElement.getAttribute('aria-valuetext')"))
            self.go_to(page, "Fork here")
            page.keyboard.press("Space")
            eventually(lambda: "B 9 values" in page.locator(".branches").inner_text(), "a fork")
            self.go_to(page, "A 126 values")
            page.keyboard.press("Enter")
            self.wait_for_text(page, 125)

    def go_to(self, page: Page, name: str) -> None:
        """Presses the tab key until what has this name is reached: it gets there, and nothing keeps it."""
        for _ in range(80):
            page.keyboard.press("Tab")
            at = page.evaluate(
                """(e => e.labels?.[0]?.textContent ?? e.getAttribute('aria-label') ?? e.textContent)(
                  document.activeElement)"""
            )
            if at.startswith(name):
                return
        self.fail(f"the tab key does not reach {name!r}")

    def test_without_motion_nothing_draws_itself(self) -> None:
        with self.window(self.server, reduced_motion="reduce") as page:
            page.wait_for_timeout(1000)
            self.assertEqual(max(self.pixels(page, SHEET)[0]), -1)
            page.get_by_role("button", name="Draw", exact=True).click()
            self.wait_until_drawn(page, SHEET, 16)


if __name__ == "__main__":
    unittest.main()
