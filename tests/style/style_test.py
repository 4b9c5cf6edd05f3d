#!/usr/bin/env python3
"""Keeps what reviews would otherwise have to: include directions, function length, dead files, format.

Run by ctest (test_style), or by hand: tests/style/style_test.py
"""

import ast
import collections
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ("*.h", "*.cc", "*.cu", "*.cuh")
MAX_FUNCTION_LINES = 70

# What each folder may include, itself aside. `proto` stands for the generated headers.
BELOW_SERVER = ["engine", "models", "base", "config", "proto"]
LAYERS = {
    "base": [],
    "kernels": ["base"],
    "models": ["kernels", "base"],
    "engine": ["models", "kernels/control.h", "kernels/view.h", "base"],
    "config": ["base"],
    "server": BELOW_SERVER,
    "server/grpc": ["server", *BELOW_SERVER],
    "server/http": ["server/event_log.h", "server/listen_socket.h", "server/listener.h", "base"],
    "server/openai": ["server", "engine", "models", "base"],
    "server/process": ["server", *BELOW_SERVER],
    "client": ["models", "base", "proto"],
    "bench": ["client", "server", "config", "engine", "models", "kernels", "base", "proto"],
    "bench/gpu": ["bench", "engine", "models", "kernels", "base"],
    "cli": ["bench", "client", "server", "config", "engine", "models", "kernels", "base", "proto"],
    "tests/reference": ["models", "kernels", "base"],
}
# The faces of the server and the process on top of them: the folder under them does not know them.
ABOVE = {
    "server": ("server/grpc/", "server/http/", "server/openai/", "server/process/"),
    "server/grpc": ("server/http/", "server/openai/", "server/process/"),
    "server/openai": ("server/grpc/", "server/process/"),
    "bench": ("bench/gpu/",),
}
# The share of the code, tests apart, that one room may hold.
MAX_SHARE = 0.30
# fmt and grpc bring headers of their own; these prefixes are ours.
OURS = re.compile(
    r'#include "((?:base|kernels|models|engine|server|config|client|bench|cli|tests|proto|runnel)/[^"]+)"'
)
# Names of a person's machine or of files outside of the project.
FOREIGN = re.compile(r"(?<![\w.$}])/(?:root|home|work)/\w")


def files(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(ROOT / line for line in listed.splitlines() if (ROOT / line).is_file())


def relative(path):
    return path.relative_to(ROOT).as_posix()


def code_files():
    return files(*CODE)


def functions(text):
    """Yields (line, length) of functions, as Google style lays them out: a body closes at its head's column."""
    other = re.compile(
        r"(namespace|class|struct|enum|union|extern|template <[^>]*> *(class|struct)|if|for|while|switch|"
        r"else|do|case|return|public|private|using)\b"
    )
    lines = text.split("\n")
    for end_of_head, line in enumerate(lines):
        if not line.endswith("{"):
            continue
        start = end_of_head  # of the declaration: it may stand on several lines
        while start > 0 and lines[start - 1] and not re.search(r"([;{}:]|//.*)$", lines[start - 1]):
            start -= 1
        head = " ".join(lines[start : end_of_head + 1])
        indent = len(head) - len(head.lstrip())
        if indent > 2 or other.match(head.lstrip()) or "(" not in head.split("=")[0]:
            continue
        if head.count("(") != head.count(")"):  # a lambda or a table within a call
            continue
        for end in range(end_of_head + 1, len(lines)):
            if lines[end].startswith(" " * indent + "}"):
                yield start + 1, end - start + 1
                break


class Style(unittest.TestCase):
    def test_a_layer_includes_only_what_lies_under_it(self):
        faults = []
        for path in code_files():
            name = relative(path)
            layer = max((f for f in LAYERS if name.startswith(f + "/")), key=len, default=None)
            if layer is None:
                continue
            for included in OURS.findall(path.read_text()):
                target = "proto/" + included if included.startswith("runnel/") else included
                allowed = [layer, *LAYERS[layer]]
                below = any(target == a or target.startswith(a + "/") for a in allowed)
                if not below or target.startswith(ABOVE.get(layer, ())):
                    faults.append(f"{name} includes {included}")
        self.assertEqual(faults, [])

    def test_no_room_holds_too_much(self):
        lines: collections.Counter[str] = collections.Counter()
        for path in files(*CODE, "*.py", "scripts/*", "docker/*"):
            parts = relative(path).split("/")
            if parts[0] not in ("tests", "docs"):
                lines["/".join(parts[:2]) if parts[0] == "kernels" and len(parts) > 2 else parts[0]] += len(
                    path.read_text().splitlines()
                )
        shares = {room: count / lines.total() for room, count in lines.items()}
        self.assertEqual({room: round(share, 2) for room, share in shares.items() if share > MAX_SHARE}, {})

    def test_only_server_proto_and_clients_know_grpc(self):
        below = ("base/", "kernels/", "models/", "engine/", "config/")
        faults = [
            relative(p)
            for p in code_files()
            if relative(p).startswith(below) and re.search(r"#include [<\"](grpc|google)", p.read_text())
        ]
        self.assertEqual(faults, [])

    def test_json_and_hexadecimal_digits_are_read_in_base(self):
        faults = [
            relative(path)
            for path in code_files()
            if not relative(path).startswith(("base/json.", "base/hex.", "tests/"))
            and re.search(r"<nlohmann/|\bsax_parse\b|[jJ]son::parse\(|0123456789abcdef", path.read_text())
        ]
        self.assertEqual(faults, [])

    def test_functions_fit_on_a_screen(self):
        faults = [
            f"{relative(path)}:{line} has {length} lines"
            for path in code_files()
            for line, length in functions(path.read_text())
            if length > MAX_FUNCTION_LINES
        ]
        for path in files("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.FunctionDef):
                    continue
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    faults.append(f"{relative(path)}:{node.lineno} has {length} lines")
        self.assertEqual(faults, [])

    def test_the_measure_of_functions_works(self):
        body = "\n".join(f"  step({i});" for i in range(80))
        self.assertEqual([n for _, n in functions("void f() {\n" + body + "\n}\n")], [82])
        self.assertEqual([n for _, n in functions("int A::f(int x,\n         int y) {\n  g();\n}\n")], [4])
        lambda_within = "TEST(A, B) {\n  f(1,\n    {[] {\n" + body + "\n  }});\n}\n"
        self.assertEqual([n for _, n in functions(lambda_within)], [85])
        self.assertEqual(list(functions("const std::array kTable = {{\n    {f(1)},\n}};\n")), [])

    def test_every_source_file_is_built_and_every_header_is_included(self):
        lists = "\n".join(p.read_text() for p in files("*CMakeLists.txt"))
        sources = "\n".join(p.read_text() for p in code_files())
        faults = []
        for path in code_files():
            if path.suffix in (".cc", ".cu") and path.name not in lists:
                faults.append(f"{relative(path)} is in no CMakeLists.txt")
            if path.suffix in (".h", ".cuh") and f'"{relative(path)}"' not in sources:
                faults.append(f"{relative(path)} is included nowhere")
        self.assertEqual(faults, [])

    def test_headers_begin_with_what_they_are_for(self):
        # *_inl.h is included several times on purpose.
        faults = [
            relative(p)
            for p in files("*.h", "*.cuh")
            if not p.read_text().startswith("//")
            or ("#pragma once" not in p.read_text() and not p.name.endswith("_inl.h"))
        ]
        self.assertEqual(faults, [])

    def test_text_names_no_machine(self):
        faults = []
        for path in files():
            if path.suffix in (".safetensors", ".png", ".npz") or "idx" in path.suffix:
                continue
            for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
                if FOREIGN.search(line):
                    faults.append(f"{relative(path)}:{number}: {line.strip()[:80]}")
        self.assertEqual(faults, [])

    def test_code_is_formatted(self):
        tool = shutil.which("clang-format-19")
        if tool is None:
            self.skipTest("clang-format-19 is not installed")
        result = subprocess.run(
            [tool, "--dry-run", "-Werror", *code_files()], cwd=ROOT, capture_output=True, text=True, check=False
        )
        self.assertEqual(result.returncode, 0, result.stderr[:2000])


if __name__ == "__main__":
    unittest.main(verbosity=1)
