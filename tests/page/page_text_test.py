"""A text is continued, forks, goes back; its state is seen, saved and loaded. Markup stays text."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import unittest
import urllib.request
from typing import Any

from browser import ENDLESS, MANY, PATIENCE, RUNNEL, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Page

WAYS_BACK = ("Fork here", "Go back to here")


class Words(BrowserTest):
    server: Server
    plain: Server
    endless: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve()
        cls.plain = cls.serve(models=(TEXT,), rewind=False)
        cls.endless = cls.serve(models=(ENDLESS,), rewind=False)

    def open(self, server: Server | None = None, **options: Any) -> Any:
        return self.window(server or self.server, **options)

    def test_a_text_is_continued_with_its_probabilities(self) -> None:
        with self.open() as page:
            self.choose(page, TEXT)
            text = self.write(page)
            self.assertTrue(text.startswith("The river was "))
            page.locator(".token").nth(21).hover()
            panel = page.locator(".inspector")
            self.assertRegex(panel.inner_text(), r"\d%? · position 22")
            self.assertEqual(page.locator(".alternatives li").count(), 5)
            shades = page.locator(".token").evaluate_all("all => all.map(e => +e.style.getPropertyValue('--surprise'))")
            self.assertGreater(len(set(shades)), 10)
            page.get_by_role("button", name="Continue", exact=True).click()
            self.wait_for_text(page, len(text) + 40)
            self.assertTrue(self.text(page).startswith(text))

    def test_a_text_is_added_and_continued(self) -> None:
        with self.open() as page:
            self.choose(page, TEXT)
            text = self.write(page)
            added = " And the sea "
            page.get_by_label("Text to read first").fill(added)
            page.get_by_role("button", name="Add and continue").click()
            self.wait_for_text(page, len(text + added) + 40)
            self.assertTrue(self.text(page).startswith(text + added))

    def test_text_depends_on_seed_and_sampling_settings(self) -> None:
        with self.open() as page:
            self.choose(page, TEXT)
            text = self.write(page)
            self.assertEqual(self.write(page), text)
            self.settings(page, temperature="0")
            cold = self.write(page)
            self.assertNotEqual(cold, text)
            self.settings(page, temperature="4", top_p="0.01")
            self.assertEqual(self.write(page), cold, "so small a top-p leaves the most likely token alone")

    def test_a_stopped_text_is_continued(self) -> None:
        with self.open(self.endless) as page:
            self.write_and_stop(page, "Write")
            text = self.text(page)
            self.assertLess(len(text), MANY)
            self.settings(page, values="10")
            page.get_by_role("button", name="Continue", exact=True).click()
            self.wait_for_text(page, len(text) + 10)
            self.assertTrue(self.text(page).startswith(text))

    def test_a_text_is_forked_rewound_and_compared(self) -> None:
        for server in (self.server, self.plain):
            with self.subTest(rewind=server is self.server), self.open(server) as page:
                self.choose(page, TEXT)
                text = self.write(page)
                page.locator(".token").nth(30).click()
                self.fork(page, 30)
                self.assertEqual(self.text(page)[:54], text, "the same seed, from the same position")
                page.get_by_role("button", name=re.compile("^A ")).click()
                self.assertEqual(self.text(page), text)
                self.go_back_and_compare(page)
                before = self.compared(page)
                page.get_by_role("button", name="Continue both").click()
                self.wait_for_compared(page, [size + 60 for size in before])
                self.assertEqual(page.locator("svg.tree circle").count(), 3)

    def compared(self, page: Page) -> list[int]:
        """The sizes of the two texts side by side."""
        return list(page.locator(".compare .tokens").evaluate_all("all => all.map(e => e.textContent.length)"))

    def wait_for_compared(self, page: Page, sizes: list[int]) -> None:
        eventually(lambda: self.compared(page) == sizes, f"sizes {sizes}")

    def test_two_branches_are_continued_even_if_one_of_them_fails(self) -> None:
        with self.open() as page:
            self.choose(page, TEXT)
            text = self.write(page)
            self.press_button(page, "Fork")
            eventually(lambda: "B 55 values" in page.locator(".branches").inner_text(), "a fork")
            eventually(lambda: self.is_idle(page), "its end")
            page.get_by_text("Compare two branches").click()
            page.route("**/v1/completions", lambda route: route.abort(), times=1)
            page.get_by_role("button", name="Continue both").click()
            page.get_by_role("alert").filter(has_text="does not answer").wait_for()
            self.assertTrue(self.is_idle(page), "both have ended")
            self.assertEqual(sorted(self.compared(page)), [len(text), len(text) + 60])

    def test_a_state_is_seen_saved_and_loaded(self) -> None:
        with self.open() as page:
            self.choose(page, TEXT)
            page.get_by_label("Watch while it runs").check()
            text = self.write(page, values=40)
            self.assertEqual(page.locator("canvas.matrix").count(), 4)
            self.assertTrue(page.locator("canvas.norms").is_visible())
            label = page.locator("canvas.matrix").first.get_attribute("aria-label")
            self.assertRegex(label or "", r"layers\.0\.S: 4 heads of 32 by 32, norm \d")
            page.get_by_label("Watch while it runs").uncheck()
            with page.expect_download() as file:
                page.get_by_role("button", name="Save state").click()
            saved = pathlib.Path(file.value.path())
            inspected = subprocess.run(
                [RUNNEL, "session", "inspect", str(saved)], capture_output=True, text=True, check=True
            )
            self.assertIn(str(len(text) + 1), inspected.stdout, "with the value that every text begins with")
            page.get_by_label("Load state").set_input_files(saved)
            eventually(lambda: "B 55 values" in page.locator(".branches").inner_text(), "the loaded state")
            self.settings(page, values="10")
            page.get_by_role("button", name="Continue", exact=True).click()
            self.wait_for_text(page, 10)
            loaded = self.text(page)
            page.get_by_role("button", name=re.compile("^A ")).click()
            page.get_by_role("button", name="Continue", exact=True).click()
            self.wait_for_text(page, 64)
            self.assertEqual(self.text(page)[54:], loaded)

    def greedy(self, prompt: str, values: int) -> str:
        """The most likely continuation of a text, by a call of its own."""
        body = {"model": TEXT, "prompt": prompt, "max_tokens": values, "temperature": 0}
        request = urllib.request.Request(
            f"{self.plain.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return str(json.load(answer)["choices"][0]["text"])

    def look_at(self, page: Page, token: int) -> None:
        page.get_by_role("slider", name="Token", exact=True).fill(str(token))

    def go_back_in_vain(self, page: Page, token: int, way: str, told: str) -> None:
        """Looks at a token and presses `way`, which fails with an error that says `told` and changes nothing."""
        before, branches = self.text(page), page.locator(".branches").inner_text()
        self.look_at(page, token)
        self.press_button(page, way)
        page.get_by_role("alert").filter(has_text=told).wait_for()
        eventually(lambda: self.is_idle(page), "the end of the attempt")
        self.assertEqual(self.text(page), before)
        self.assertEqual(page.locator(".branches").inner_text(), branches)

    def continue_greedily(self, page: Page, values: int) -> str:
        """Continues the text by its most likely values, and gives all that the page shows."""
        size = len(self.text(page))
        self.settings(page, values=str(values), temperature="0")
        self.press_button(page, "Continue")
        self.wait_for_text(page, size + values)
        return self.text(page)

    def test_a_loaded_state_that_cannot_go_back_is_as_before(self) -> None:
        for way in WAYS_BACK:
            with self.subTest(way), self.open(self.plain) as page:
                read = self.write(page)
                with page.expect_download() as file:
                    page.get_by_role("button", name="Save state").click()
                page.get_by_label("Load state").set_input_files(file.value.path())
                eventually(lambda: "B 55 values" in page.locator(".branches").inner_text(), "the loaded state")
                eventually(lambda: self.is_idle(page), "the end of the load")
                self.continue_greedily(page, 20)
                self.go_back_in_vain(page, 4, way, "does not know those before the loaded state")
                self.assertEqual(self.continue_greedily(page, 10), self.greedy(read, 30))

    def test_a_full_server_forks_at_an_earlier_token_and_a_failed_way_back_changes_nothing(self) -> None:
        with self.open(self.serve(models=(TEXT,), rewind=False, sessions=2)) as page:
            text = self.write(page)
            self.look_at(page, 30)
            self.fork(page, 30)
            self.assertEqual(self.text(page)[:54], text, "the copy has made room for the new session")
            before = self.text(page)
            self.go_back_in_vain(page, 20, "Go back to here", "delete a session")
            self.assertEqual(self.continue_greedily(page, 10), before + self.greedy(before, 10))
            page.get_by_role("button", name=re.compile("^A ")).click()
            self.assertEqual(self.continue_greedily(page, 10), text + self.greedy(text, 10))

    def test_a_new_session_that_cannot_read_the_text_changes_nothing(self) -> None:
        for way in WAYS_BACK:
            with self.subTest(way), self.open(self.plain) as page:
                text = self.write(page)
                page.route("**/v1/completions", lambda route: route.abort(), times=1)
                self.go_back_in_vain(page, 30, way, "does not answer")
                self.assertEqual(self.continue_greedily(page, 10), text + self.greedy(text, 10))
                self.look_at(page, 30)
                self.press_button(page, way)
                self.wait_for_text(page, 30)
                self.assertEqual(self.continue_greedily(page, 10), text[:30] + self.greedy(text[:30], 10))

    def test_markup_is_shown_as_text(self) -> None:
        attack = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
        with self.open() as page:
            self.choose(page, TEXT)
            self.assertTrue(self.write(page, attack, values=5).startswith(attack))
            self.assertEqual(page.locator(".tokens img, .tokens script").count(), 0)
            self.assertEqual(page.title(), "runnel")

    def test_the_content_security_policy_is_enforced(self) -> None:
        with self.open(may_violate=True) as page:
            page.evaluate(
                """() => {
                  const found = window.found = [];
                  document.addEventListener('securitypolicyviolation', e => found.push(e.effectiveDirective));
                  const s = document.createElement('style'); s.append('body { color: red }'); document.head.append(s);
                  try { document.body.innerHTML = '<b>x</b>'; } catch (e) { found.push(e.name); }
                  fetch('http://127.0.0.1:1/').catch(() => {});
                }"""
            )
            expected = {"TypeError", "connect-src", "require-trusted-types-for", "style-src-elem"}
            eventually(lambda: set(page.evaluate("window.found")) == expected, "the violations")


if __name__ == "__main__":
    unittest.main()
