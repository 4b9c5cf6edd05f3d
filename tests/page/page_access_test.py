"""The page without a mouse, with a screen reader, on a phone, in the dark and without motion."""

from __future__ import annotations

import pathlib
import unittest

import axe_playwright_python
from browser import COMPLETED, MANY, PAD, SHEET, SIDE, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Page

PAINTED = '<div class="lower">'  # its background is a pattern, much darker than its text
AXE = pathlib.Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()


class Everybody(BrowserTest):
    """Without a mouse, with a screen reader, on a phone, in the dark, without motion."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve(models=("mnist-small", TEXT, "talk"))

    def assert_accessible(self, page: Page, where: str) -> None:
        """axe finds no violation, and no contrast that it only cannot judge, as that of a text of one letter."""
        page.evaluate(AXE)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations', 'incomplete']})")
        faults = [
            (f["id"], [node["html"][:200] + node["failureSummary"] for node in f["nodes"]]) for f in found["violations"]
        ]
        self.assertEqual(faults, [], where)
        unclear = [
            (node["html"][:200], check["data"])
            for f in found["incomplete"]
            for node in f["nodes"]
            for check in node["any"]
            if f["id"] == "color-contrast" and check["data"]["messageKey"] != "nonBmp"
        ]
        self.assertEqual([(html, data) for html, data in unclear if not html.startswith(PAINTED)], [], where)

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

    def test_landmarks_and_regions_have_names(self) -> None:
        with self.window(self.server) as page:
            for role in ("banner", "main", "contentinfo"):
                self.assertEqual(page.get_by_role(role).count(), 1)
            for name in ("The server now", "Models", "Draw", "Finish a drawing", "Sessions", "State"):
                self.assertEqual(page.get_by_role("region", name=name, exact=True).count(), 1, name)
            self.assertEqual(page.get_by_role("heading", level=1).inner_text(), "runnel")

    def test_the_page_can_be_used_by_keys_alone(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.keyboard.press("Tab")
            self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
            page.keyboard.press("Enter")
            self.start_at(page, TEXT)
            self.replace(page, "Text to read first", "Once ")
            self.activate(page, "Write")
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

    def activate(self, page: Page, name: str, key: str = "Enter", exact: bool = False) -> None:
        """Goes to a control with the tab key, and presses a key there."""
        self.go_to(page, name, exact)
        page.keyboard.press(key)

    def replace(self, page: Page, name: str, text: str) -> None:
        """Replaces the content of a field."""
        self.go_to(page, name)
        page.keyboard.press("Control+a")
        page.keyboard.type(text)

    def start_at(self, page: Page, model: str) -> None:
        """Chooses a model with the arrow keys."""
        self.go_to(page, "mnist-small")
        for _ in range(3):
            if page.evaluate("document.activeElement.value") == model:
                return
            page.keyboard.press("ArrowDown")
        self.fail(f"the arrow keys do not reach {model!r}")

    def test_a_conversation_by_keys_alone(self) -> None:
        with self.window(self.server) as page:
            self.start_at(page, "talk")
            self.activate(page, "Instructions and settings")
            self.replace(page, "Values", "30")
            self.replace(page, "Your message", "The river was")
            page.keyboard.press("Enter")
            answered = page.get_by_role("button", name="Send", exact=True, disabled=False)
            page.get_by_role("button", name="Retry").wait_for()
            answered.wait_for()
            self.activate(page, "Retry")
            page.get_by_text("2 of 2").wait_for()
            answered.wait_for()
            self.activate(page, "Version before", "Space")
            page.get_by_text("1 of 2").wait_for()
            self.assertEqual(self.focused(page), "Next version", "the focus stays with the versions")
            self.activate(page, "Edit")
            page.keyboard.press("Control+a")
            page.keyboard.type("The sea was")
            self.activate(page, "Send edited")
            page.locator(".turn.user .said", has_text="The sea was").wait_for()
            answered.wait_for()
            self.activate(page, "New conversation")
            eventually(lambda: page.locator(".turn").count() == 0, "an empty conversation")

    def test_an_answer_is_stopped_and_continued_by_keys_alone(self) -> None:
        with self.window(self.server) as page:
            self.start_at(page, "talk")
            self.activate(page, "Instructions and settings")
            self.replace(page, "Values", str(MANY))
            self.replace(page, "Your message", "The river was")
            page.keyboard.press("Enter")
            answer = page.locator(".turn.assistant .said")
            eventually(lambda: answer.count() == 1 and len(answer.inner_text()) > 20, "a part")
            self.activate(page, "Stop")
            idle = page.get_by_role("button", name="Send", exact=True, disabled=False)
            idle.wait_for()
            part = answer.text_content() or ""
            self.go_to(page, "Instructions and settings")
            self.replace(page, "Values", "10")
            self.activate(page, "Continue", exact=True)
            idle.wait_for()
            eventually(lambda: len(answer.text_content() or "") > len(part), "the rest")
            self.assertTrue((answer.text_content() or "").startswith(part))

    def test_a_text_is_stopped_and_rewound_by_keys_alone(self) -> None:
        with self.window(self.server) as page:
            self.start_at(page, "talk")
            self.replace(page, "Text to read first", "Once ")
            self.replace(page, "Values", str(MANY))
            self.activate(page, "Write")
            eventually(lambda: len(self.text(page)) > 60, "a part")
            self.activate(page, "Stop")
            eventually(lambda: self.is_idle(page), "the stop")
            text = self.text(page)
            self.replace(page, "Values", "10")
            self.activate(page, "Continue", exact=True)
            self.wait_for_text(page, len(text) + 10)
            self.go_to(page, "Token")
            page.keyboard.press("Home")
            for _ in range(8):
                page.keyboard.press("ArrowRight")
            self.activate(page, "Go back to here")
            eventually(lambda: "A 9 values" in page.locator(".branches").inner_text(), "position 9")
            eventually(lambda: self.is_idle(page), "the end of the way back")
            other = page.locator(".alternatives button:enabled").nth(1)
            self.activate(page, other.get_attribute("aria-label") or "", exact=True)
            eventually(lambda: page.locator(".branches button").count() == 2, "another branch")
            self.assertEqual(self.focused(page), "Token", "the alternatives are others now")
            eventually(lambda: self.is_idle(page) and len(self.text(page)) > 10, "its values")

    def test_branches_are_compared_and_states_loaded_by_keys_alone(self) -> None:
        with self.window(self.server) as page:
            self.start_at(page, TEXT)
            self.replace(page, "Text to read first", "Once ")
            self.replace(page, "Values", "20")
            self.activate(page, "Write")
            self.wait_for_text(page, 25)
            self.activate(page, "Fork", "Space", exact=True)
            eventually(lambda: "B 26 values" in page.locator(".branches").inner_text(), "a fork")
            self.activate(page, "Compare two branches")
            self.go_to(page, "Branch")
            page.keyboard.press("ArrowDown")
            both = page.locator(".compare .note").all_inner_texts
            eventually(lambda: both() == ["26 values, the first 26 alike"] * 2, "two alike branches")
            self.activate(page, "Continue both")
            eventually(lambda: all(text.startswith("86 values") for text in both()), "both are continued")
            self.activate(page, "Look at the state", "Space")
            page.locator("canvas.matrix").first.wait_for()
            with page.expect_download() as file:
                self.activate(page, "Save state")
            self.assertTrue(self.outlines(page))
            with page.expect_file_chooser() as chooser:
                self.activate(page, "Load state")
            self.assertEqual(
                self.outlines(page), ["Load state"], "the focus is seen, though the field itself is hidden"
            )
            chooser.value.set_files(file.value.path())
            eventually(lambda: page.locator(".branches button").count() == 3, "the loaded state")

    def outlines(self, page: Page) -> list[str]:
        """Names of the buttons that are drawn as having the focus."""
        return list(
            page.locator("button, label.button").evaluate_all(
                """all => all.filter(e => getComputedStyle(e).outlineStyle === 'solid').map(e => e.textContent)"""
            )
        )

    def test_a_picture_is_drawn_and_played_by_keys_alone(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            self.activate(page, "Draw", exact=True)
            self.wait_until_drawn(page, SHEET, 16)
            with page.expect_download():
                self.activate(page, "Save as PNG")
            self.activate(page, "Picture 1")
            upper = SIDE * SIDE // 2
            eventually(lambda: self.pixels(page, PAD)[0][:upper] == self.pixels(page, SHEET)[0][:upper], "its half")
            self.go_to(page, "Play slowly")
            page.keyboard.press("Tab")
            page.keyboard.press("ArrowUp")  # from 120 to 30 values per second, so that a drawing takes half a minute
            page.keyboard.press("Shift+Tab")
            page.keyboard.press("Enter")
            eventually(lambda: min(self.pixels(page, SHEET)[0]) < 0, "pictures that are not whole yet")
            page.keyboard.press("Space")
            eventually(lambda: page.get_by_role("button", name="Pause").count() == 0, "the pause")
            self.activate(page, "New picture")
            eventually(lambda: "A 112 values" in page.locator(".branches").inner_text(), "four rows")
            self.activate(page, "Draw 4 rows")
            eventually(lambda: "A 224 values" in page.locator(".branches").inner_text(), "eight rows")
            self.go_to(page, "After row")
            page.keyboard.press("ArrowLeft")
            self.activate(page, "Fork here")
            eventually(lambda: "B 196 values" in page.locator(".branches").inner_text(), "a fork after row 7")

    def test_a_picture_that_is_completed_again_keeps_the_focus(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.locator(COMPLETED).nth(1).locator("xpath=..").focus()
            before = self.pixels(page, COMPLETED)
            page.keyboard.press("Enter")
            eventually(lambda: self.pixels(page, COMPLETED) != before, "the beginning")
            self.wait_until_drawn(page, COMPLETED, 6)
            self.assertIn("Picture 2", self.focused(page))

    def focused(self, page: Page) -> str:
        """The name of the element that has the focus."""
        return str(
            page.evaluate(
                """(e => e.labels?.[0]?.textContent ?? e.getAttribute('aria-label') ?? e.textContent)(
                  document.activeElement)"""
            )
        )

    def go_to(self, page: Page, name: str, exact: bool = False) -> None:
        """Presses the tab key until it reaches the element whose name begins so: nothing keeps the focus."""
        for _ in range(120):
            page.keyboard.press("Tab")
            at = self.focused(page)
            if at == name or (at.startswith(name) and not exact):
                return
        self.fail(f"the tab key does not reach {name!r}")

    def test_with_reduced_motion_nothing_is_drawn_unasked(self) -> None:
        with self.window(self.server, reduced_motion="reduce") as page:
            page.wait_for_timeout(1000)
            self.assertEqual(max(self.pixels(page, SHEET)[0]), -1)
            page.get_by_role("button", name="Draw", exact=True).click()
            self.wait_until_drawn(page, SHEET, 16)


if __name__ == "__main__":
    unittest.main()
