"""Keys that are wrong, requests that are refused, and servers that stop and return."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
import urllib.request
from collections.abc import Callable
from typing import Any

from browser import COMPLETED, ENDLESS, MANY, PATIENCE, RUNNEL, SHEET, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Page, expect

# How a key is used once it is typed.
WAYS: dict[str, Callable[[Page], None]] = {
    "mouse": lambda page: page.get_by_role("button", name="Use").click(),
    "finger": lambda page: page.get_by_role("button", name="Use").tap(),
    "keyboard": lambda page: page.get_by_label("Key").press("Enter"),
}
WATCHED = 6  # answers with the status, one a second
MOST_GONE = 8  # models that the server no longer has, whose panels the page keeps
# Gives the browser expire(), which ends the last request that had 30 s or more, as if its time were over.
EXPIRING = """() => {
  const native = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = (ms) => {
    if (ms < 30000) return native(ms);
    const control = new AbortController();
    window.expire = () => control.abort(new DOMException('', 'TimeoutError'));
    return control.signal;
  };
}"""


class Trouble(BrowserTest):
    """Keys that are wrong, and servers that stop."""

    def test_a_key_is_requested_and_not_stored(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys.json"
            made = subprocess.run(
                [RUNNEL, "key", "new", "alice", "--file", str(keys)], capture_output=True, text=True, check=True
            )
            key = re.search(r"rnl_\w+", made.stdout)
            assert key, made.stdout
            server = self.serve("--keys", str(keys))
            for name, use in WAYS.items():
                with self.subTest(name), self.window(server, models=0, has_touch=True) as page:
                    self.assert_key_is_asked_for(page, key[0], use)

    def assert_key_is_asked_for(self, page: Page, key: str, use: Callable[[Page], None]) -> None:
        banner = page.locator("#lost")
        eventually(lambda: "Type a key" in banner.inner_text(), "the question")
        page.get_by_label("Key").fill("wrong")
        use(page)
        eventually(lambda: "key" in banner.inner_text(), "the refusal")
        for impossible in ("cl\u00e9", "\u043a\u043b\u044e\u0447", "a b"):
            page.get_by_label("Key").fill("wrong")
            use(page)
            eventually(lambda: "no spaces" not in banner.inner_text(), "the refusal of the server")
            page.get_by_label("Key").fill(impossible)
            use(page)
            eventually(lambda: "a key has only letters, digits and signs of ASCII" in banner.inner_text(), impossible)
        page.get_by_label("Key").fill(key)
        use(page)
        self.wait_until_drawn(page, COMPLETED, 6)
        self.assertFalse(banner.is_visible())
        self.assertEqual(page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length"), 0)
        self.assertNotIn(key, page.url + page.content())

    def test_an_error_is_shown_in_the_words_of_the_server(self) -> None:
        with self.window(self.serve()) as page:
            self.choose(page, TEXT)
            self.settings(page, temperature="-1")
            page.get_by_role("button", name="Write", exact=True).click()
            alert = page.get_by_role("alert").filter(has_text="temperature")
            alert.wait_for()
            self.assertIn("Change the setting or the text that the message names", alert.inner_text())
            self.settings(page, temperature="1")
            self.write(page)
            self.assertFalse(page.get_by_role("alert").first.is_visible(), "an error that is over")

    def test_a_request_without_an_answer_ends_and_can_be_made_again(self) -> None:
        server = self.serve(models=(TEXT,))
        with self.window(server) as page:
            page.evaluate(EXPIRING)
            sessions = f"{server.url}/v1/sessions"
            page.route(sessions, lambda route: None)
            with page.expect_request(sessions):
                self.press_button(page, "Write")
            page.evaluate("expire()")
            alert = page.get_by_role("alert").filter(has_text="not answered completely within 30 seconds")
            alert.wait_for()
            self.assertIn("try again", alert.inner_text())
            page.unroute(sessions)
            self.write(page)
            self.assertFalse(alert.is_visible(), "an error that is over")

    def test_a_transfer_of_a_state_that_hangs_ends_and_can_be_made_again(self) -> None:
        server = self.serve(models=(TEXT,))
        with self.window(server) as page:
            self.write(page)
            alert = page.get_by_role("alert").filter(has_text="not answered completely within 600 seconds")
            page.evaluate(EXPIRING)

            def save() -> pathlib.Path:
                with page.expect_download() as file:
                    self.press_button(page, "Save state")
                return pathlib.Path(file.value.path())

            saved = save()
            transfers: dict[str, Callable[[], Any]] = {
                "GET": lambda: self.press_button(page, "Save state"),
                "PUT": lambda: page.get_by_label("Load state").set_input_files(saved),
            }
            for method, transfer in transfers.items():
                with self.subTest(method):
                    eventually(lambda: self.is_idle(page), "the end of the transfer before")
                    page.route(re.compile("/state"), lambda route: None)
                    with page.expect_request(re.compile("/state")) as request:
                        transfer()
                    self.assertEqual(request.value.method, method)
                    page.evaluate("expire()")
                    alert.wait_for()
                    page.unroute(re.compile("/state"))
                    save()
                    self.assertFalse(alert.is_visible(), "an error that is over")

    def test_an_idle_page_costs_the_server_little(self) -> None:
        # At most 2% of one core, so a page costs other streams no more than that.
        server = self.serve()
        with self.window(server) as page:
            self.wait_until_drawn(page, COMPLETED, 6)
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url.removeprefix(server.url)))
            with page.expect_response(f"{server.url}/v1/status"):
                pass
            asked.clear()
            began, used = time.monotonic(), server.cpu_seconds()
            for _ in range(WATCHED):
                with page.expect_response(f"{server.url}/v1/status"):
                    pass
            self.assertLess(server.cpu_seconds() - used, 0.02 * (time.monotonic() - began))
            self.assertEqual(asked, ["/v1/status"] * WATCHED, "one request a second, and no other")

    def test_panels_of_models_that_are_gone_end_when_there_are_too_many(self) -> None:
        server = self.serve(models=(TEXT,))
        with urllib.request.urlopen(f"{server.url}/v1/status", timeout=PATIENCE) as answer:
            status = json.load(answer)
        [model] = status["models"]
        names = [f"new-{i}" for i in range(MOST_GONE)]
        ended: list[str] = []
        with self.window(server) as page:
            page.on("request", lambda asked: ended.append(asked.url) if asked.method == "DELETE" else None)
            self.write(page)
            page.route(
                f"{server.url}/v1/status",
                lambda route: route.fulfill(json={**status, "models": [{**model, "id": name} for name in names]}),
            )
            for name in names:
                self.choose(page, name)
            self.assertEqual(ended, [], "the session of the text")
            with page.expect_request(lambda asked: asked.method == "DELETE"):
                names[:] = ["newest"]
            page.unroute_all(behavior="wait")

    def test_a_model_of_another_kind_under_its_name_gets_other_panels(self) -> None:
        server = self.serve(models=(TEXT,))
        with urllib.request.urlopen(f"{server.url}/v1/status", timeout=PATIENCE) as answer:
            status = json.load(answer)
        [model] = status["models"]
        changed: dict[str, object] = {"numerics": "another"}
        with self.window(server) as page:
            text = self.write(page)
            page.route(
                f"{server.url}/v1/status",
                lambda route: route.fulfill(json={**status, "models": [{**model, **changed}]}),
            )
            page.locator("#facts", has_text="another").wait_for()
            self.assertEqual(self.text(page), text, "panels that still fit")
            changed["has_chat"] = True
            page.get_by_role("heading", name="Chat", exact=True).wait_for()
            self.assertIn("text and chat", page.locator(".model").inner_text())
            self.assertTrue(page.get_by_role("radio").is_checked())
            page.unroute_all(behavior="wait")

    def test_a_small_server_draws_as_many_pictures_as_it_has_sessions(self) -> None:
        server = self.serve(models=("mnist-small",), sessions=4)
        with self.window(server) as page:
            self.wait_until_drawn(page, SHEET, 4)
            self.wait_until_drawn(page, COMPLETED, 4)
            panel = page.locator("section", has=page.get_by_role("heading", name="Draw", exact=True))
            panel.get_by_label("Pictures").select_option("16")
            panel.get_by_role("button", name="Draw", exact=True).click()
            alert = panel.get_by_role("alert")
            eventually(lambda: alert.is_visible() and re.search(r"n is 16|16", alert.inner_text()), "the refusal")

    def wait_until_sessions_ended(self, server: Server) -> None:
        def none_is_left() -> bool:
            with urllib.request.urlopen(f"{server.url}/v1/status", timeout=PATIENCE) as answer:
                return all(model["sessions"] == model["sessions_free"] for model in json.load(answer)["models"])

        eventually(none_is_left, "the end of the idle sessions")

    def test_sessions_that_the_server_has_ended_are_continued_forked_saved_and_deleted(self) -> None:
        server = self.serve("--idle-timeout-ms", "5000", models=(TEXT,))
        with self.window(server) as page:
            text = self.write(page)
            self.wait_until_sessions_ended(server)
            self.settings(page, values="10")
            self.press_button(page, "Continue")
            self.wait_for_text(page, len(text) + 10)
            self.wait_until_sessions_ended(server)
            self.press_button(page, "Fork")
            eventually(lambda: "B 65 values" in page.locator(".branches").inner_text(), "a fork")
            eventually(lambda: self.is_idle(page), "its end")
            self.wait_until_sessions_ended(server)
            page.get_by_role("slider", name="Token", exact=True).fill("30")
            self.press_button(page, "Fork here")
            self.wait_for_text(page, 30)
            self.wait_until_sessions_ended(server)
            with page.expect_download() as file:
                self.press_button(page, "Save state")
            self.assertGreater(pathlib.Path(file.value.path()).stat().st_size, 0)
            eventually(lambda: self.is_idle(page), "the end of the download")
            self.wait_until_sessions_ended(server)
            for left in (2, 1, 0):
                self.press_button(page, "Delete")
                expect(page.locator(".branches button")).to_have_count(left, timeout=1000 * PATIENCE)
            self.assertEqual(page.get_by_role("alert").count(), 0)

    def test_a_server_that_returns_is_found_again(self) -> None:
        server = self.serve(models=(ENDLESS,))
        with self.window(server) as page:
            text = self.write(page)
            self.settings(page, values=str(MANY))
            page.get_by_role("button", name="Continue", exact=True).click()
            eventually(lambda: len(self.text(page)) > len(text), "more text")
            server.kill()
            banner = page.locator("#lost")
            eventually(lambda: "does not answer" in banner.inner_text(), "the loss")
            eventually(lambda: self.is_idle(page), "the end of the stream")
            text = self.text(page)
            server.start()
            eventually(lambda: not banner.is_visible(), "the return")
            eventually(lambda: "not on the server" in page.locator(".branches").inner_text(), "what is lost")
            self.settings(page, values="5")
            page.get_by_role("button", name="Continue", exact=True).click()
            self.wait_for_text(page, len(text) + 5)
            self.assertTrue(self.text(page).startswith(text))
            self.assertNotIn("not on the server", page.locator(".branches").inner_text())


if __name__ == "__main__":
    unittest.main()
