"""Models whose values are neither pixels nor text: they are written as numbers, or as their symbols."""

from __future__ import annotations

import re
import unittest

from browser import BrowserTest, Server, eventually
from playwright.sync_api import Page

TOLD = list("31415926535897932384626433832795")  # the model was trained on 32 values or more
END = "0"


class Values(BrowserTest):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve(models=("copy", "letters=tests/golden/symbols_relu_none"))

    def copy(self, page: Page) -> list[str]:
        """Has the model read TOLD, and gives the values that follow."""
        self.settings(page, temperature="0")
        said = self.write_values(page, " ".join([*TOLD, END]), len(TOLD))
        self.assertEqual(said[: len(TOLD) + 1], [*TOLD, END])
        return said[len(TOLD) + 1 :]

    def branches(self, page: Page) -> str:
        return page.locator(".branches").inner_text()

    def test_a_model_repeats_the_given_values(self) -> None:
        with self.window(self.server) as page:
            self.assertIn(
                "11 values", page.get_by_role("radio", name=re.compile("^copy")).locator("xpath=..").inner_text()
            )
            self.assertTrue(page.get_by_label("Values to read first: whole numbers from 0 to 10").is_visible())
            self.assertEqual(self.copy(page), TOLD)
            page.locator(".token").nth(len(TOLD) + 3).click()
            panel = page.locator(".inspector")
            self.assertRegex(panel.inner_text(), rf"^[\s\S]*\b{TOLD[2]} \d+%? · position {len(TOLD) + 4}")
            self.assertEqual(page.locator(".alternatives li").count(), 5)
            page.get_by_role("button", name="Fork here").click()
            eventually(lambda: f"B {len(TOLD) + 4} values" in self.branches(page), "a fork")
            page.get_by_role("button", name="Continue", exact=True).click()
            eventually(lambda: self.is_idle(page) and len(self.values(page)) == 2 * len(TOLD) + 4, "the rest")
            self.assertEqual(self.values(page)[len(TOLD) + 1 : 2 * len(TOLD) + 1], TOLD)
            page.get_by_text("Compare two branches").click()
            self.assertIn(f"the first {2 * len(TOLD) + 1} alike", page.locator(".compare").inner_text())

    def test_another_value_is_chosen_and_the_branch_follows_it(self) -> None:
        with self.window(self.server) as page:
            self.copy(page)
            self.settings(page, values="2")
            page.locator(".token").nth(len(TOLD) + 6).click()
            other = page.locator(".alternatives button").nth(1)
            value = other.inner_text()
            other.click()
            eventually(lambda: f"B {len(TOLD) + 9} values" in self.branches(page) and self.is_idle(page), "a branch")
            self.assertEqual(self.values(page)[len(TOLD) + 6], value)
            self.assertNotEqual(value, TOLD[5])

    def test_invalid_values_are_refused_with_a_remedy(self) -> None:
        with self.window(self.server) as page:
            for typed, told in (("3 eleven", "“eleven” is not a value"), ("3, 11", "“11” is not a value")):
                page.get_by_label("Values to read first").fill(typed)
                page.get_by_role("button", name="Write", exact=True).click()
                page.get_by_role("alert").filter(has_text=told).wait_for()
                alert = page.get_by_role("alert").first
                self.assertIn("Its values are: whole numbers from 0 to 10.", alert.inner_text())

    def test_values_are_written_as_their_symbols(self) -> None:
        with self.window(self.server) as page:
            self.choose(page, "letters")
            self.assertTrue(page.get_by_label("Values to read first: a b c d e").is_visible())
            said = self.write_values(page, "b, e", 20)
            self.assertEqual(said[:3], ["a", "b", "e"], "the value that every sequence begins with comes first")
            self.assertEqual(len(said), 23)
            self.assertLessEqual(set(said), set("abcde"))
            page.locator(".token").nth(10).click()
            self.assertEqual(sorted(page.locator(".alternatives button").all_inner_texts()), list("abcde"))


if __name__ == "__main__":
    unittest.main()
