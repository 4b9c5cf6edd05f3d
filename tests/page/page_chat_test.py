"""Conversations: stop, retry, continue, and edit of an earlier turn."""

from __future__ import annotations

import re
import unittest

from browser import MANY, BrowserTest, Server, eventually
from playwright.sync_api import Page


class Conversations(BrowserTest):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.serve(models=("talk",))

    def say(self, page: Page, text: str) -> None:
        page.get_by_label("Your message", exact=True).fill(text)
        page.get_by_role("button", name="Send", exact=True).click()
        self.wait(page)

    def wait(self, page: Page) -> None:
        eventually(lambda: page.get_by_role("button", name="Send", exact=True).is_enabled(), "the answer")

    def turns(self, page: Page) -> list[str]:
        return page.locator(".turn .said").all_text_contents()

    def begin(self, page: Page, values: str = "40") -> None:
        page.get_by_text("Instructions and settings").click()
        chat = page.get_by_role("region", name="Chat")
        chat.get_by_label("Values").fill(values)
        chat.get_by_label("Seed").fill("7")

    def assert_read_little(self, page: Page) -> None:
        """The server had a state of the conversation up to the last message."""
        note = page.locator(".turn .note").last.inner_text()
        read, whole = map(int, re.search(r"read (\d+) of (\d+)", note).groups())
        self.assertLess(read, whole / 2)

    def test_turns_are_retried_edited_and_stay(self) -> None:
        with self.window(self.server) as page:
            self.begin(page)
            self.say(page, "The river was ")
            self.say(page, "And then ")
            first = self.turns(page)
            self.assertEqual(len(first), 4)
            self.assertEqual(first[0::2], ["The river was", "And then"])
            self.assertTrue(all(first))
            self.assertRegex(page.locator(".turn .note").last.inner_text(), r"\d+ values, seed 7; read \d+ of \d+")
            page.get_by_role("region", name="Chat").get_by_label("Seed").fill("8")
            page.get_by_role("button", name="Retry").last.click()
            self.wait(page)
            self.assertEqual(self.turns(page)[:3], first[:3])
            self.assertNotEqual(self.turns(page)[3], first[3])
            self.assert_read_little(page)
            page.get_by_role("button", name="Version before").click()
            self.assertEqual(self.turns(page), first)
            page.get_by_role("button", name="Edit").last.click()
            page.get_by_label("Your message, edited").fill("And so")
            page.get_by_role("button", name="Send edited").click()
            self.wait(page)
            self.assertEqual(self.turns(page)[:3], [*first[:2], "And so"])
            self.assert_read_little(page)
            page.get_by_role("button", name="Version before").first.click()
            self.assertEqual(self.turns(page), first)
            page.get_by_role("button", name="Edit").first.click()
            page.get_by_label("Your message, edited").fill("The sea was")
            page.get_by_role("button", name="Send edited").click()
            self.wait(page)
            edited = self.turns(page)
            self.assertEqual((len(edited), edited[0]), (2, "The sea was"))
            page.get_by_role("button", name="Version before").first.click()
            self.assertEqual(self.turns(page), first)

    def test_an_editor_closes_when_another_turn_is_answered(self) -> None:
        with self.window(self.server) as page:
            self.begin(page)
            self.say(page, "The river was ")
            page.get_by_role("button", name="Edit").click()
            page.get_by_label("Your message, edited").fill("The sea was")
            self.say(page, "And then ")
            self.assertEqual(page.get_by_role("button", name="Send edited").count(), 0)
            self.assertEqual(self.turns(page)[0::2], ["The river was", "And then"])

    def test_an_answer_is_stopped_and_continued(self) -> None:
        with self.window(self.server) as page:
            self.begin(page, str(MANY))
            page.get_by_label("Your message", exact=True).fill("The river was ")
            page.keyboard.press("Enter")
            eventually(lambda: len("".join(self.turns(page)[1:])) > 20, "a part")
            page.get_by_role("region", name="Chat").get_by_role("button", name="Stop").click()
            self.wait(page)
            part = self.turns(page)[1]
            self.assertLess(len(part), MANY)
            page.get_by_role("region", name="Chat").get_by_label("Values").fill("10")
            page.get_by_role("region", name="Chat").get_by_role("button", name="Continue").click()
            self.wait(page)
            self.assertTrue(self.turns(page)[1].startswith(part))
            self.assertGreater(len(self.turns(page)[1]), len(part))

    def test_markup_is_shown_as_text(self) -> None:
        with self.window(self.server) as page:
            self.begin(page)
            self.say(page, "<b>bold</b><script>document.title='hit'</script>")
            self.assertIn("<b>bold</b>", self.turns(page)[0])
            self.assertEqual(page.locator(".turns b, .turns script").count(), 0)
            self.assertEqual(page.title(), "runnel")


if __name__ == "__main__":
    unittest.main()
