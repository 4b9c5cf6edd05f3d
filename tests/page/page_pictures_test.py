"""Pictures draw themselves, are completed and fork: by mouse, finger and keyboard."""

from __future__ import annotations

import json
import pathlib
import struct
import unittest
import urllib.request

from browser import COMPLETED, PAD, PATIENCE, SESSION, SHEET, SIDE, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Page

# Notes, for each canvas, the number of rows that are drawn whenever it is painted.
NOTE_ROWS = """() => {
  const painted = window.painted = new Map();
  const put = CanvasRenderingContext2D.prototype.putImageData;
  CanvasRenderingContext2D.prototype.putImageData = function (pixels, ...rest) {
    const drawn = pixels.data.filter((value, i) => i % 4 === 3 && value === 255).length;
    painted.set(this.canvas, [...painted.get(this.canvas) ?? [], drawn / pixels.width]);
    put.call(this, pixels, ...rest);
  };
}"""


def png_size(path: pathlib.Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


class Pictures(BrowserTest):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve()

    def test_models_are_described(self) -> None:
        with self.window(self.server) as page:
            facts = page.locator("#facts")
            self.assertRegex(facts.inner_text(), r"66 KiB")
            self.assertRegex(facts.inner_text(), r"\d+ of 64 sessions")
            self.assertRegex(facts.inner_text(), r"cpu/\S+/step")
            self.choose(page, TEXT)
            self.assertIn("842,752", facts.inner_text())

    def test_pictures_draw_themselves(self) -> None:
        with self.window(self.server) as page:
            drawn = self.wait_until_drawn(page, SHEET, 16)
            self.assertTrue(all(max(picture) > 200 for picture in drawn))
            note = page.locator("section:has(h2:text-is('Draw')) .speed")
            self.assertRegex(note.inner_text(), r"[1-9][\d,]* values per second, seed \d+")
            self.assert_strip_counts(page)
            page.locator("section", has=page.get_by_role("heading", name="Draw")).get_by_label(
                "Pictures"
            ).select_option("4")
            page.get_by_role("button", name="Draw", exact=True).click()
            self.wait_until_drawn(page, SHEET, 4)
            with page.expect_download() as file:
                page.get_by_role("button", name="Save as PNG").first.click()
            self.assertEqual(png_size(pathlib.Path(file.value.path())), (8 * (2 * SIDE + 2),) * 2)

    def test_rows_appear_one_after_the_other(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.evaluate(NOTE_ROWS)
            page.get_by_role("button", name="Draw", exact=True).click()
            self.wait_until_drawn(page, SHEET, 16)
            for canvas in page.locator(SHEET).all():
                rows = canvas.evaluate("canvas => window.painted.get(canvas)")
                self.assertEqual(rows[: SIDE + 1], list(range(SIDE + 1)))

    def assert_strip_counts(self, page: Page) -> None:
        """The strip tells of pictures that are drawn together."""
        page.evaluate(
            """() => {
              window.shown = {values: [], rows: [], first: [], sessions: []};
              const note = () => Object.entries(window.shown).forEach(([name, all]) =>
                all.push(document.querySelector(`[data-figure=${name}]`).textContent));
              new MutationObserver(note).observe(document.getElementById('strip'), {childList: true, subtree: true});
            }"""
        )
        page.get_by_role("button", name="Draw", exact=True).click()
        self.wait_until_drawn(page, SHEET, 16)

        def most(name: str) -> float:
            told = [text.replace(",", "") for text in page.evaluate("name => window.shown[name]", name)]
            return max((float(text) for text in told if text != "–"), default=0)

        eventually(lambda: most("values") > 0 and most("rows") > 1, "values and rows")
        eventually(lambda: 0 < most("first") < 60_000, "a time to the first value")

    def test_the_upper_half_is_drawn_with_the_mouse(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.get_by_role("button", name="Clear").click()
            self.drag(page)
            self.assert_completed(page)

    def test_the_upper_half_is_erased_and_taken_from_a_picture_with_the_mouse(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.get_by_role("button", name="Clear").click()
            self.drag(page)
            drawn = self.ink(page)
            page.get_by_role("button", name="Eraser").click()
            page.get_by_role("button", name="Eraser", pressed=True).wait_for()
            self.drag(page)
            self.assertLess(self.ink(page), drawn / 2)
            self.assert_begin_with_the_pad(page)
            page.get_by_role("button", name="Eraser").click()
            page.get_by_role("button", name="Eraser", pressed=False).wait_for()
            self.drag(page)
            self.assertGreater(self.ink(page), drawn / 2)
            page.locator(SHEET).first.click()
            half = SIDE * SIDE // 2
            eventually(lambda: self.pixels(page, PAD)[0][:half] == self.pixels(page, SHEET)[0][:half], "its half")
            self.assert_begin_with_the_pad(page)

    def ink(self, page: Page) -> int:
        """The sum of the grey values in the upper half of the pad."""
        return sum(self.pixels(page, PAD)[0][: SIDE * SIDE // 2])

    def drag(self, page: Page) -> None:
        page.locator(PAD).scroll_into_view_if_needed()
        box = page.locator(PAD).bounding_box()
        assert box
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.2 * box["height"], steps=8)
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.45 * box["height"], steps=8)
        page.mouse.up()

    def assert_completed(self, page: Page) -> None:
        """Six pictures begin with the drawing on the pad, and end in different ways."""
        upper = self.pixels(page, PAD)[0][: SIDE * SIDE // 2]
        self.assertGreater(sum(value > 128 for value in upper), 8)
        self.assert_begin_with_the_pad(page)
        self.assertGreater(len({tuple(picture) for picture in self.pixels(page, COMPLETED)}), 1)

    def assert_begin_with_the_pad(self, page: Page) -> None:
        """Six whole pictures begin with the drawing on the pad."""
        half = SIDE * SIDE // 2
        upper = self.pixels(page, PAD)[0][:half]

        def done() -> bool:
            pictures = self.pixels(page, COMPLETED)
            return len(pictures) == 6 and all(p[:half] == upper and min(p) >= 0 for p in pictures)

        eventually(done, "six completions")

    def test_the_upper_half_is_drawn_with_a_finger(self) -> None:
        with self.window(self.server, width=360, has_touch=True, is_mobile=True) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.get_by_role("button", name="Clear").tap()
            page.locator(PAD).scroll_into_view_if_needed()
            box = page.locator(PAD).bounding_box()
            assert box
            finger = page.context.new_cdp_session(page)

            def touch(kind: str, *at: float) -> None:
                points = [{"x": box["x"] + at[0] * box["width"], "y": box["y"] + at[1] * box["height"]}] if at else []
                finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

            touch("touchStart", 0.3, 0.2)
            for step in range(1, 9):
                touch("touchMove", 0.3 + 0.05 * step, 0.2 + 0.02 * step)
            touch("touchEnd")
            self.assert_completed(page)

    def test_the_upper_half_is_drawn_with_the_keyboard(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            page.locator(".pad").focus()
            for key in ["Delete", *["ArrowUp"] * 3, " ", *["ArrowRight"] * 6, *["ArrowDown"] * 5, " "]:
                page.keyboard.press(key)
            self.assert_completed(page)
            before = self.ink(page)
            for key in ["e", " ", *["ArrowUp"] * 5, " ", "Enter"]:
                page.keyboard.press(key)
            self.assertLess(self.ink(page), before)
            page.keyboard.press("Tab")
            self.assertEqual(page.evaluate("document.activeElement.textContent"), "Eraser")

    def test_a_drawing_is_played_slowly(self) -> None:
        with self.window(self.server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            panel = page.locator("section", has=page.get_by_role("heading", name="Draw", exact=True))
            panel.get_by_label("Values per second").select_option("30")  # for half a minute
            panel.get_by_role("button", name="Play slowly").click()
            slider = panel.get_by_role("slider", name="Value")
            eventually(lambda: 5 < int(slider.input_value()) < 700, "some values")
            panel.get_by_role("button", name="Pause").click()
            self.assertEqual(min(self.pixels(page, SHEET)[0]), -1, "the rest is to come")
            slider.focus()
            page.keyboard.press("End")
            self.assertGreaterEqual(min(self.pixels(page, SHEET)[0]), 0)

    def test_a_picture_forks(self) -> None:
        with self.window(self.server) as page:
            page.get_by_role("button", name="New picture").click()
            rows = page.get_by_role("button", name="Draw 4 rows")
            rows.click()
            eventually(lambda: f"A {8 * SIDE} values" in page.locator(".branches").inner_text(), "eight rows")
            page.get_by_role("slider", name="After row").fill("4")
            page.get_by_role("button", name="Fork here").click()
            eventually(lambda: f"B {4 * SIDE} values" in page.locator(".branches").inner_text(), "a fork")
            page.get_by_role("button", name="Draw to the end").click()
            picture = self.wait_until_drawn(page, SESSION, 1)
            self.assertEqual(len(picture[0]), SIDE * SIDE)
            page.get_by_text("Compare two branches").click()
            self.assertEqual(page.locator(".compare canvas").count(), 2)
            page.get_by_role("slider", name="After row").fill("6")
            page.get_by_role("button", name="Go back to here").click()
            eventually(lambda: f"B {6 * SIDE} values" in page.locator(".branches").inner_text(), "the way back")

    def test_sessions_outlast_another_model_and_end_with_the_page(self) -> None:
        server = self.serve()
        with self.window(server) as page:
            page.get_by_role("button", name="New picture").click()
            eventually(lambda: "A 112 values" in page.locator(".branches").inner_text(), "a session")
            self.choose(page, TEXT)
            self.write(page)
            self.choose(page, "mnist-small")
            self.assertIn("A 112 values", page.locator(".branches").inner_text())
            eventually(lambda: self.sessions(server) == 2, "two sessions, once no picture is drawn")
            page.close(run_before_unload=False)
            eventually(lambda: self.sessions(server) == 0, "the end of the sessions")

    def sessions(self, server: Server) -> int:
        with urllib.request.urlopen(f"{server.url}/v1/status", timeout=PATIENCE) as answer:
            return sum(model["sessions"] - model["sessions_free"] for model in json.load(answer)["models"])

    def test_sixteen_streams_need_six_connections(self) -> None:
        with self.window(self.server) as page:
            most = 0
            for count in ("16", "36"):
                page.locator("section", has=page.get_by_role("heading", name="Draw")).get_by_label(
                    "Pictures"
                ).select_option(count)
                page.get_by_role("button", name="Draw", exact=True).click()
                page.get_by_role("button", name="Complete", exact=True).click()
                page.get_by_role("button", name="New picture").click()
                for _ in range(20):
                    most = max(most, self.server.connections())
                    page.wait_for_timeout(20)

            def has_drawn_by_several() -> bool:
                nonlocal most
                most = max(most, self.server.connections())
                pictures = self.pixels(page, SHEET)
                return most > 1 and len(pictures) == 36 and all(min(picture) >= 0 for picture in pictures)

            eventually(has_drawn_by_several, "36 pictures")
            self.assertLessEqual(most, 6)


if __name__ == "__main__":
    unittest.main()
