"""The page on a phone: everything by touch, on a screen of 360 pixels."""

from __future__ import annotations

import contextlib
import pathlib
import unittest
from collections.abc import Iterator

from browser import COMPLETED, ENDLESS, MANY, PAD, SESSION, SHEET, SIDE, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Locator, Page

WIDTH = 360


class Touch(BrowserTest):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve(models=("mnist-small", TEXT, ENDLESS, "talk", "copy"))

    @contextlib.contextmanager
    def phone(self, model: str = "") -> Iterator[Page]:
        """A window that is touched and never clicked, and whose content is no wider than it."""
        with self.window(self.server, width=WIDTH, has_touch=True, is_mobile=True) as page:
            if model:
                page.get_by_role("radio", name=model, exact=False).first.tap()
                page.get_by_role("radio", name=model, checked=True).wait_for()
            yield page
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), WIDTH)

    def press(self, place: Locator) -> None:
        place.tap()

    def branches(self, page: Page) -> str:
        return page.locator(".branches").inner_text()

    def drag(self, page: Page, line: list[tuple[float, float]]) -> None:
        """A finger along a line on the pad, in shares of its box."""
        page.locator(PAD).scroll_into_view_if_needed()
        box = page.locator(PAD).bounding_box()
        assert box
        finger = page.context.new_cdp_session(page)

        def touch(kind: str, points: list[tuple[float, float]]) -> None:
            places = [{"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]} for x, y in points]
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

        touch("touchStart", line[:1])
        for point in line[1:]:
            touch("touchMove", [point])
        touch("touchEnd", [])

    def choose_file(self, page: Page, place: Locator, file: pathlib.Path) -> None:
        with page.expect_file_chooser() as chooser:
            place.tap()
        chooser.value.set_files(file)

    def upper(self, page: Page, selector: str) -> list[int]:
        """The upper half of the first picture there."""
        return self.pixels(page, selector)[0][: SIDE * SIDE // 2]

    def draw(self, page: Page, line: list[tuple[float, float]]) -> int:
        """The ink on the pad after a stroke, once it is completed: a browser ignores a tap right after a stroke."""
        before = self.upper(page, PAD)
        self.drag(page, line)
        eventually(lambda: self.upper(page, PAD) != before, "the stroke")
        eventually(lambda: self.upper(page, COMPLETED) == self.upper(page, PAD), "its completion")
        return sum(self.upper(page, PAD))

    def test_a_drawing_is_erased_taken_and_played(self) -> None:
        line = [(0.3 + 0.05 * step, 0.25) for step in range(9)]
        with self.phone() as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            self.press_button(page, "Draw")
            self.wait_until_drawn(page, SHEET, 16)
            self.press_button(page, "Clear")
            drawn = self.draw(page, line)
            self.assertGreater(drawn, 0)
            self.press_button(page, "Eraser")
            page.get_by_role("button", name="Eraser", pressed=True).wait_for()
            self.assertLess(self.draw(page, line[:5]), drawn)
            page.locator(SHEET).first.tap()
            eventually(lambda: self.upper(page, PAD) == self.upper(page, SHEET), "the upper half of a picture")
            with page.expect_download():
                self.press_button(page, "Save as PNG")
            self.press_button(page, "Play slowly")
            eventually(lambda: min(self.pixels(page, SHEET)[0]) < 0, "pictures that are not whole yet")
            self.press_button(page, "Pause")
            slider = page.get_by_role("slider", name="Value").first
            box = slider.bounding_box()
            assert box
            slider.tap(position={"x": box["width"] - 4, "y": box["height"] / 2})
            eventually(lambda: int(slider.input_value()) > SIDE * SIDE * 0.9, "the end, by a finger on the slider")

    def test_a_picture_forks(self) -> None:
        with self.phone() as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            self.press_button(page, "New picture")
            eventually(lambda: f"A {4 * SIDE} values" in self.branches(page), "four rows")
            self.press_button(page, "Draw 4 rows")
            eventually(lambda: f"A {8 * SIDE} values" in self.branches(page), "eight rows")
            slider = page.get_by_role("slider", name="After row")
            slider.tap(position={"x": 4, "y": 8})
            row = int(slider.input_value())
            self.assertLess(row, 8)
            self.press_button(page, "Fork here")
            eventually(lambda: f"B {row * SIDE} values" in self.branches(page), "a fork")
            self.press_button(page, "Draw to the end")
            self.wait_until_drawn(page, SESSION, 1)

    def test_a_text_forks_is_compared_saved_and_loaded(self) -> None:
        with self.phone(TEXT) as page:
            text = self.write(page)
            page.locator(".token").nth(30).tap()
            self.assertIn("position 31", page.locator(".inspector").inner_text())
            self.fork(page, 30)
            page.locator(".branches button").first.tap()
            self.wait_for_text(page, len(text))
            self.go_back_and_compare(page)
            self.press_button(page, "Look at the state")
            page.locator("canvas.matrix").first.wait_for()
            with page.expect_download() as file:
                self.press_button(page, "Save state")
            saved = pathlib.Path(file.value.path())
            self.choose_file(page, page.locator("label.button", has_text="Load state"), saved)
            eventually(lambda: page.locator(".branches button").count() == 4, "the loaded state")
            self.press_button(page, "Delete")
            eventually(lambda: page.locator(".branches button").count() == 3, "its end")

    def test_a_text_is_stopped(self) -> None:
        with self.phone(ENDLESS) as page:
            self.write_and_stop(page, "Continue")

    def test_a_conversation_is_edited_retried_and_begun_anew(self) -> None:
        with self.phone("talk") as page:
            page.get_by_text("Instructions and settings").tap()
            page.get_by_role("region", name="Chat").get_by_label("Values").fill("30")
            page.get_by_label("Your message", exact=True).fill("The river was ")
            self.press_button(page, "Send")
            self.press_button(page, "Retry")
            page.get_by_text("2 of 2").wait_for()
            self.press_button(page, "Version before")
            page.get_by_text("1 of 2").wait_for()
            self.press_button(page, "Edit")
            page.get_by_label("Your message, edited").fill("The sea was")
            self.press_button(page, "Send edited")
            eventually(
                lambda: page.locator(".turn.user .said").all_inner_texts() == ["The sea was"], "the edited message"
            )
            eventually(lambda: page.get_by_role("button", name="Send", exact=True).is_enabled(), "the answer")
            self.press_button(page, "New conversation")
            eventually(lambda: page.locator(".turn").count() == 0, "an empty conversation")

    def test_an_answer_is_stopped_and_continued(self) -> None:
        with self.phone("talk") as page:
            page.get_by_text("Instructions and settings").tap()
            values = page.get_by_role("region", name="Chat").get_by_label("Values")
            values.fill(str(MANY))
            page.get_by_label("Your message", exact=True).fill("The river was ")
            self.press_button(page, "Send")
            answer = page.locator(".turn.assistant .said")
            eventually(lambda: answer.count() == 1 and len(answer.inner_text()) > 20, "a part")
            self.press_button(page, "Stop")
            page.get_by_role("button", name="Send", exact=True, disabled=False).wait_for()
            part = answer.text_content() or ""
            values.fill("10")
            self.press_button(page, "Continue")
            eventually(lambda: len(answer.text_content() or "") > len(part), "the rest")
            self.assertTrue((answer.text_content() or "").startswith(part))

    def test_values_are_continued(self) -> None:
        with self.phone("copy") as page:
            page.get_by_label("Values to read first").fill("3 1 4 0")
            self.settings(page, values="10")
            self.press_button(page, "Write")
            eventually(lambda: len(self.values(page)) == 14 and self.is_idle(page), "ten values more")
            page.locator(".token").nth(5).tap()
            self.assertIn("position 6", page.locator(".inspector").inner_text())
            self.press_button(page, "Fork here")
            eventually(lambda: "B 6 values" in self.branches(page), "a fork")


if __name__ == "__main__":
    unittest.main()
