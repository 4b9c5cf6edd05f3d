"""States are shown as they are: models with attention keep keys and values, which may be bf16."""

from __future__ import annotations

import json
import struct
import unittest
import urllib.request
from typing import Any

from browser import PATIENCE, TEXT, BrowserTest, Server, eventually
from playwright.sync_api import Page

LAST = 64  # positions of a cache that the page shows
PARSE = """async ({path, positions}) => {
  const {parseState, cachesOf} = await import('/page/state.js');
  const {parts} = parseState(await (await fetch(path)).arrayBuffer());
  const plain = (all) => all.map(({name, shape, numbers}) => ({name, shape, numbers: Array.from(numbers)}));
  return {parts: plain(parts), caches: plain(cachesOf(parts, positions))};
}"""


def size_of(shape: list[int]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size


def numbers_of(kind: str, data: bytes) -> list[float]:
    if kind == "f32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    halves = struct.unpack(f"<{len(data) // 2}H", data)
    return list(struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves))))


def parts_of(file: bytes) -> list[dict[str, Any]]:
    """The parts of a state file, read as docs/state.md has it."""
    [size] = struct.unpack("<I", file[12:16])
    at = 16 + size
    parts: list[dict[str, Any]] = json.loads(file[16:at])["parts"]
    for part in parts:
        end = at + size_of(part["shape"]) * {"f32": 4, "bf16": 2}[part["type"]]
        part["numbers"] = numbers_of(part["type"], file[at:end])
        at = end + 4
    return parts


def window_of(part: dict[str, Any], positions: int) -> list[float]:
    """The last positions of a cache, for each head and each number of a position; 0 where none is left to show."""
    _, heads, rows, columns = part["shape"]
    is_keys = part["name"].endswith(".keys")
    size, page = (rows, columns) if is_keys else (columns, rows)
    shown = []
    for head in range(heads):
        for i in range(size):
            for position in range(max(0, positions - LAST), max(LAST, positions)):
                row, column = (i, position % page) if is_keys else (position % page, i)
                at = ((position // page * heads + head) * rows + row) * columns + column
                shown.append(part["numbers"][at] if position < positions else 0)
    return shown


class States(BrowserTest):
    hybrid: Server
    softmax: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        hybrid = ("hybrid=tests/golden/hybrid_qwen3_5",)
        cls.hybrid = cls.serve("--precision", "bf16", models=hybrid)
        cls.softmax = cls.serve(models=("softmax=tests/golden/softmax", TEXT))

    def panel(self, page: Page) -> Any:
        return page.get_by_role("region", name="State", exact=True)

    def look(self, page: Page) -> list[str]:
        """Looks at the state, and gives the caption of each picture."""
        before = page.locator(".matrices figcaption").all_inner_texts()
        page.get_by_role("button", name="Look at the state").click()
        eventually(lambda: page.locator(".matrices figcaption").all_inner_texts() != before, "another look")
        return page.locator(".matrices figcaption").all_inner_texts()

    def test_a_state_with_attention_is_read_and_drawn(self) -> None:
        with self.window(self.hybrid) as page:
            self.assertIn("256 bytes for each value", page.locator("#facts").inner_text())
            self.assertIn("so the state grows", self.panel(page).inner_text())
            self.assertNotIn("never grows", self.panel(page).inner_text())
            self.assertEqual(len(self.write_values(page, "1 2 3", 17)), 20)
            first = self.look(page)
            self.assertEqual(len(first), 5)
            self.assertIn("layers.0.S · 4 heads of 16 by 24, norm", first[0])
            self.assertEqual(first[3], "layers.3.keys · 2 heads of 32, the last 19 of 19 positions")
            self.assertEqual(first[4], "layers.3.values · 2 heads of 32, the last 19 of 19 positions")
            self.settings(page, values="150")
            page.get_by_role("button", name="Continue", exact=True).click()
            eventually(lambda: len(self.values(page)) == 170 and self.is_idle(page), "170 values")
            self.assertIn("the last 64 of 169 positions", self.look(page)[3])
            self.assertTrue(page.locator("canvas.norms").is_visible())
            self.assert_read(page, 169)

    def assert_read(self, page: Page, positions: int) -> None:
        """The page reads every number as the file has it."""
        session = page.locator(".branches button").first.get_attribute("title")
        path = f"/v1/sessions/{session}/state?model=hybrid"
        with urllib.request.urlopen(self.hybrid.url + path, timeout=PATIENCE) as answer:
            parts = parts_of(answer.read())
        self.assertEqual({part["type"] for part in parts}, {"f32", "bf16"})
        found = page.evaluate(PARSE, {"path": path, "positions": positions})
        for part, read in zip(parts, found["parts"], strict=True):
            self.assertEqual((read["name"], read["shape"]), (part["name"], part["shape"]))
            self.assertEqual(read["numbers"], part["numbers"], part["name"])
        for count in (positions, 40):
            caches = page.evaluate(PARSE, {"path": path, "positions": count})["caches"]
            self.assertEqual([cache["shape"] for cache in caches], [[2, 32, LAST]] * 2)
            for cache, part in zip(caches, parts[-2:], strict=True):
                self.assertEqual(cache["numbers"], window_of(part, count), part["name"])

    def test_a_transformer_with_softmax_attention_has_keys_and_values_alone(self) -> None:
        with self.window(self.softmax) as page:
            self.choose(page, "softmax")
            self.write_values(page, "1 2 3", 5)
            self.assertEqual(len(self.look(page)), 4)
            page.get_by_role("button", name="Continue", exact=True).click()
            eventually(lambda: len(self.values(page)) == 14 and self.is_idle(page), "five more values")
            self.assertIn("the last 13 of 13 positions", self.look(page)[0])
            self.assertFalse(page.locator("canvas.norms").is_visible(), "there is no matrix, and so no norm of one")
            self.choose(page, TEXT)
            self.assertIn("It never grows", self.panel(page).inner_text())
            self.assertIn("however long", page.locator("#facts").inner_text())

    def test_a_branch_keeps_a_bounded_number_of_norms(self) -> None:
        look = """async () => {
          const {thinned} = await import('/page/state.js');
          let norms = [];
          for (let position = 1; position <= 5000; ++position) norms = thinned([...norms, {position}]);
          return norms.map((norm) => norm.position);
        }"""
        with self.window(self.softmax) as page:
            positions = page.evaluate(look)
        self.assertLessEqual(len(positions), 400)
        self.assertEqual((positions[0], positions[-1]), (1, 5000))
        self.assertEqual(positions, sorted(positions))

    def test_numbers_of_an_unknown_type_are_refused_with_a_remedy(self) -> None:
        parse = """async () => {
          const {parseState} = await import('/page/state.js');
          const header = new TextEncoder().encode(JSON.stringify({parts: [{name: 'a', type: 'f64', shape: [1]}]}));
          const file = new Uint8Array(16 + header.length + 12);
          file.set(new TextEncoder().encode('RNLSTATE'));
          new DataView(file.buffer).setUint32(12, header.length, true);
          file.set(header, 16);
          try { parseState(file.buffer); } catch (error) { return error.message; }
          return 'nothing';
        }"""
        with self.window(self.softmax) as page:
            self.assertRegex(page.evaluate(parse), "numbers of type f64, which this page cannot read. Reload the page")


if __name__ == "__main__":
    unittest.main()
