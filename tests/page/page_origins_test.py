"""Pages of another origin, whose requests have the headers of OpenAI's JavaScript client."""

from __future__ import annotations

import contextlib
import http.server
import threading
import unittest
from collections.abc import Iterator
from typing import Any

from browser import PATIENCE, TEXT, BrowserTest, Server
from playwright.sync_api import Page

HEADERS = {
    "Authorization": "Bearer none",
    "Content-Type": "application/json",
    **{f"X-Stainless-{name}": "x" for name in ("Arch", "Lang", "OS", "Package-Version", "Retry-Count", "Timeout")},
}
ASK = """async ({url, options}) => {
  const answer = await fetch(url, options);
  const names = ['retry-after', 'x-should-retry', 'allow'];
  return {status: answer.status, text: await answer.text(),
          headers: Object.fromEntries(names.map(name => [name, answer.headers.get(name)]))};
}"""


class EmptyPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_: object) -> None:
        pass


class Origins(BrowserTest):
    """Requests and answers of a page of another origin."""

    @contextlib.contextmanager
    def page_of(self, port: int) -> Iterator[Page]:
        context = self.browser.new_context()
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(f"http://localhost:{port}/")
        yield page
        context.close()

    def elsewhere(self) -> int:
        """The port of a site with an empty page."""
        site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        self.addCleanup(site.server_close)
        self.addCleanup(site.shutdown)
        return site.server_address[1]

    def ask(self, page: Page, server: Server, path: str, method: str = "GET", body: str | None = None) -> Any:
        options: dict[str, Any] = {"method": method, "headers": HEADERS}
        if body is not None:
            options["body"] = body
        return page.evaluate(ASK, {"url": server.url + path, "options": options})

    def test_a_page_of_an_allowed_origin_can_call_like_the_openai_client(self) -> None:
        port = self.elsewhere()
        server = self.serve("--http-origins", f"http://localhost:{port}")
        prompt = f'"model": "{TEXT}", "prompt": "The river", "max_tokens": 5'
        with self.page_of(port) as page:
            whole = self.ask(page, server, "/v1/completions", "POST", "{" + prompt + "}")
            self.assertEqual(whole["status"], 200)
            self.assertIn('"choices"', whole["text"])
            stream = self.ask(page, server, "/v1/completions", "POST", "{" + prompt + ', "stream": true}')
            self.assertEqual(stream["status"], 200)
            self.assertIn("data: [DONE]", stream["text"])
            for path, method, body, status in (
                ("/v1/completions", "POST", "{", 400),
                ("/none", "GET", None, 404),
                ("/none", "POST", "{}", 404),
                ("/v1/sessions/none?model=" + TEXT, "DELETE", None, 404),
                ("/v1/models", "PUT", "{}", 405),
                ("/v1/completions", "POST", '{"prompt": "' + "x" * 5_000_000 + '"}', 413),
            ):
                refused = self.ask(page, server, path, method, body)
                self.assertEqual(refused["status"], status, path)
                self.assertIn('"error"', refused["text"])
                self.assertEqual(refused["headers"]["allow"] is not None, status == 405)

    def test_a_refusal_tells_a_page_when_to_try_again(self) -> None:
        port = self.elsewhere()
        server = self.serve(
            "--http-origins", f"http://localhost:{port}", "--http-queue-time-ms", "0", models=(TEXT,), sessions=1
        )
        keep = f'{{"model": "{TEXT}", "prompt": "a", "max_tokens": 1, "keep": true}}'
        with self.page_of(port) as page:
            self.assertEqual(self.ask(page, server, "/v1/completions", "POST", keep)["status"], 200)
            full = self.ask(page, server, "/v1/completions", "POST", keep)
            self.assertEqual(full["status"], 429)
            self.assertTrue(full["headers"]["retry-after"] or full["headers"]["x-should-retry"], full)

    def test_a_page_of_another_origin_can_read_nothing(self) -> None:
        server = self.serve()
        with self.page_of(self.elsewhere()) as page:
            failure = page.evaluate("url => fetch(url).then(() => 'read it', error => error.name)", server.url)
            self.assertEqual(failure, "TypeError")


if __name__ == "__main__":
    unittest.main()
