#!/usr/bin/env python3
"""Checks rules that reviews would otherwise check: include directions, lengths and sizes, dead files, format.

Run by ctest (test_style), or by hand: tests/style/style_test.py
"""

import ast
import collections
import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ("*.h", "*.cc", "*.cu", "*.cuh")
MAX_FUNCTION_LINES = 70

# The folders that each folder may include, besides itself. `proto` means the generated headers.
BELOW_SERVER = ["engine", "models", "base", "config", "storage"]
LAYERS = {
    "base": [],
    "kernels": ["base"],
    "models": ["kernels", "base"],
    "engine": ["models", "kernels/control.h", "kernels/penalties.h", "kernels/view.h", "base"],
    "config": ["base"],
    "storage": ["base"],
    "server/host": BELOW_SERVER,
    "server/calls": ["server/host", *BELOW_SERVER],
    "server/net": ["server/host/event_log.h", "server/host/mishaps.h", "base"],
    "server/http": ["server/calls", "server/net", "server/host", "engine", "models", "base"],
    "server/rest": ["server/http", "server/calls", "server/host", "engine", "models", "base"],
    "server/openai": ["server/http", "server/calls", "server/host", "engine", "models", "base"],
    "server/web": ["server/http", "base"],
    "server/grpc": ["server/calls", "server/net", "server/host", *BELOW_SERVER, "proto"],
    "server/process": ["server", *BELOW_SERVER],
    "client": ["models", "base", "proto"],
    "bench": ["client", "server", "config", "engine", "models", "kernels", "base", "proto"],
    "bench/gpu": ["bench", "engine", "models", "kernels", "base"],
    "cli": ["bench", "client", "server", "config", "engine", "models", "kernels", "base", "proto"],
    "tests/reference": ["models", "kernels", "base"],
}
# Folders inside a folder that the other files of the folder must not include.
ABOVE = {"bench": ("bench/gpu/",)}
# The scheduler's classes, and the headers of these classes that each may include.
SCHEDULER = ["admission", "moves", "scheduler", "sessions", "steps", "waiting_room"]
SCHEDULER_ARROWS = {
    "sessions": [],
    "steps": ["sessions"],
    "waiting_room": ["sessions"],
    "admission": ["sessions", "steps", "waiting_room"],
    "moves": ["sessions", "steps", "waiting_room"],
}
# The library of each door, and how many files of server/ outside its folder may name it. With the names of its methods
# (server/host/call_metrics.h) and a page of docs, adding an HTTP door touches four files.
DOORS = {
    "grpc": ("runnel_grpc_door", 4),
    "openai": ("runnel_openai", 2),
    "rest": ("runnel_rest", 2),
    "web": ("runnel_web", 3),  # has no methods, so its requests are not calls
}
# Files that are built instead of another file that defines the same types.
STAND_INS = ["kernels/cuda/absent.cc"]
MAX_FILE_LINES = 600
# Longer files, and the reasons. Delete an entry once its file fits.
LONG_FILES = {
    "kernels/cuda/cuda_backend.cu": "to be split: the launches of all operations",
    "kernels/cuda/head.h": "one family of kernels, sampling and scoring, that share their parts",
    "tests/fuzz/properties.cc": "one property of a parser after the other",
    "tests/kernels/cuda_test.cc": "one test of an operation after the other",
    "tests/models/bundle/config_test.cc": "a table of faults, and the message of each",
    "tests/python/test_client.py": "one test of a call of the Python client after the other",
    "tests/python/test_convert.py": "one test of a checkpoint's form after the other",
}
# The files of server/ that read the machine's clock instead of ServerContext::clock, and the reasons.
MACHINE_TIME = {
    "server/grpc/grpc_door.cc": "gRPC's Shutdown() takes a deadline of the machine's clock",
    "server/host/host.cc": "a drain waits for calls as live_calls.cc does",
    "server/host/live_calls.cc": "a thread that waits is not woken by a virtual clock",
    "server/http/http_connection.cc": "Asio's timers run by the machine's clock",
    "server/net/server_certificate.cc": "certificates expire by the machine's clock",
    "server/process/serve.cc": "a thread that waits for signals is not woken by a virtual clock",
}
MAX_CLASS_FUNCTIONS = 40
# Classes with more member functions, and the reasons.
LARGE_CLASSES = {
    "CpuOperations": "the operations of kernels/backend.h",
    "CudaBlock": "the functions that launch.h offers to kernels",
    "DeviceBackend": "the operations of kernels/backend.h",
}
# The largest share of the code, without tests, that one folder may have.
MAX_SHARE = 0.30
# fmt and grpc have headers of their own; these prefixes are ours.
OURS = re.compile(
    r'#include "((?:base|kernels|models|engine|server|config|client|bench|cli|tests|proto|runnel)/[^"]+)"'
)
# Paths on a person's machine, or of files outside the project.
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
    """Yields (line, length) of functions in Google style, where a body ends at the column of its head."""
    other = re.compile(
        r"(namespace|class|struct|enum|union|extern|template <[^>]*> *(class|struct)|if|for|while|switch|"
        r"else|do|case|return|public|private|using)\b"
    )
    lines = text.split("\n")
    for end_of_head, line in enumerate(lines):
        if not line.endswith("{"):
            continue
        start = end_of_head  # of the declaration, which may have several lines
        while start > 0 and lines[start - 1] and not re.search(r"([;{}:]|//.*)$", lines[start - 1]):
            start -= 1
        head = " ".join(lines[start : end_of_head + 1])
        indent = len(head) - len(head.lstrip())
        if indent > 2 or other.match(head.lstrip()) or "(" not in head.split("=")[0]:
            continue
        if head.count("(") != head.count(")"):  # a lambda or a table inside a call
            continue
        for end in range(end_of_head + 1, len(lines)):
            if lines[end].startswith(" " * indent + "}"):
                yield start + 1, end - start + 1
                break


def classes(text):
    """Yields (name, number of member functions) of classes and structs, including nested ones."""
    text = re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|^ *#.*$', "", text, flags=re.MULTILINE)
    for match in re.finditer(r"\b(?<!enum )(?:class|struct) (?:alignas\(\w+\) )?(\w+)\b(?! *[>,])[^;{}()=]*\{", text):
        depth, members, statement = 1, 0, ""
        for character in text[match.end() :]:
            if character == "{":
                depth += 1
            elif character == "}":
                depth -= 1
            elif depth == 1 and character != ";":
                statement += character
            if depth == 0:
                break
            if depth == 1 and character in ";}":
                members += is_function(statement)
                statement = ""
        yield match[1], members


def types_of(text):
    """Yields the qualified names of the types that a file defines in named namespaces."""
    defined = re.compile(r"(?:template <.*> *)?(?:class|struct|enum class|union) (\w+)(?: final)?(?: :.*)? *\{")
    namespaces = []
    for line in text.split("\n"):
        if opened := re.match(r"namespace *([\w:]*) *\{", line):
            namespaces.append(opened[1])
        elif re.match(r"\} *// namespace", line):
            namespaces.pop()
        elif all(namespaces) and (found := defined.match(line)):
            yield "::".join([*namespaces, found[1]])


def tests_of(text):
    """Name and body of each TEST in a source file that clang-format has formatted."""
    return re.findall(r"^TEST(?:_[FP])?\(([\w, \n]+)\) (\{.*\}$|\{\n(?s:.*?)^\})", text, re.MULTILINE)


def is_function(statement):
    """Whether a member's text before its body or semicolon declares a function."""
    statement = re.sub(r"\b(public|private|protected) *:", "", statement).strip()
    while re.search(r"<[^<>]*>", statement):
        statement = re.sub(r"<[^<>]*>", "", statement)
    if re.match(r"(using|friend|static_assert|enum|class|struct|union|typedef)\b", statement):
        return False
    if re.search(r"= *(default|delete)$", statement):
        return False
    return "(" in statement.split("=")[0] or " operator" in statement


class Style(unittest.TestCase):
    def test_a_layer_includes_only_lower_layers(self):
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

    def test_few_files_use_a_door(self):
        for door, (library, most) in DOORS.items():
            names = re.compile(rf"\bserver/{door}/|\b{library}\b")
            places = [
                relative(path)
                for path in files("server/*.h", "server/*.cc", "server/*CMakeLists.txt")
                if not relative(path).startswith(f"server/{door}/") and names.search(path.read_text())
            ]
            with self.subTest(door):
                self.assertIn("server/CMakeLists.txt", places)
                self.assertLessEqual(len(places), most, places)

    def test_no_folder_has_too_many_lines(self):
        lines: collections.Counter[str] = collections.Counter()
        for path in files(*CODE, "*.py", "scripts/*", "docker/*"):
            parts = relative(path).split("/")
            if parts[0] not in ("tests", "docs"):
                lines["/".join(parts[:2]) if parts[0] == "kernels" and len(parts) > 2 else parts[0]] += len(
                    path.read_text().splitlines()
                )
        shares = {room: count / lines.total() for room, count in lines.items()}
        self.assertEqual({room: round(share, 2) for room, share in shares.items() if share > MAX_SHARE}, {})

    def test_only_server_proto_and_clients_use_grpc(self):
        below = ("base/", "kernels/", "models/", "engine/", "config/")
        faults = [
            relative(p)
            for p in code_files()
            if relative(p).startswith(below) and re.search(r"#include [<\"](grpc|google)", p.read_text())
        ]
        self.assertEqual(faults, [])

    def test_commands_parse_neither_grpc_nor_the_library_of_flags(self):
        # These headers took two thirds of a command's compile time.
        def reached(name, seen):
            if name not in seen and (ROOT / name).exists():
                seen.add(name)
                for included in OURS.findall((ROOT / name).read_text()):
                    reached(included, seen)
            return seen

        faults = []
        for path in code_files():
            if not relative(path).startswith("cli/") or relative(path) == "cli/flags.cc":
                continue
            for name in reached(relative(path), set()):
                if re.search(r"#include (<grpcpp/|<CLI/|\".*\.grpc\.pb\.h)", (ROOT / name).read_text()):
                    faults.append(f"{relative(path)} includes {name}")
        self.assertEqual(faults, [])

    def test_json_and_hexadecimal_digits_are_read_in_base(self):
        faults = [
            relative(path)
            for path in code_files()
            if not relative(path).startswith(("base/json.", "base/json_forward.h", "base/hex.", "tests/"))
            and re.search(r"<nlohmann/|\bsax_parse\b|[jJ]son::parse\(|0123456789abcdef", path.read_text())
        ]
        self.assertEqual(faults, [])

    def test_nobody_parses_a_numerics_id(self):
        # An id is only compared. Backend and Model report the facts about a device that code needs.
        parsed = re.compile(r"numerics\w*(\([^()]*\))?\s*(\.|->)\s*(r?find|starts_with|ends_with|substr|contains)\b")
        faults = [
            relative(path)
            for path in code_files()
            if not relative(path).startswith("tests/") and parsed.search(path.read_text())
        ]
        self.assertEqual(faults, [])
        self.assertRegex('layout.numerics.find("x")', parsed)
        self.assertRegex("backend->numerics(precision).starts_with(id)", parsed)

    def test_headers_use_the_words_of_the_glossary(self):
        section = (ROOT / "docs/architecture.md").read_text().split("\n## Words\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| ([\w ]+?) \| .+ \| ([\w, ]*?) ?\|$", section, re.MULTILINE)[1:]
        self.assertGreater(len(rows), 10)
        headers = {relative(p): p.read_text() for p in files("*.h", "*.cuh", "*.proto")}
        headers = {name: text for name, text in headers.items() if not name.startswith("tests/")}
        words = " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text) for text in headers.values()).lower()
        faults = [f"no header says {word!r}" for word, _ in rows if not re.search(rf"(?<![a-z]){word}(?![a-z])", words)]
        for word, others in rows:
            for other in filter(None, others.split(", ")):
                pattern = re.compile(rf"\b{other}s?\b")
                faults += [
                    f"{name} says {other!r} for {word!r}" for name, text in headers.items() if pattern.search(text)
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

    def test_files_and_classes_have_one_job(self):
        long = [p for p in files(*CODE, "*.py") if len(p.read_text().splitlines()) > MAX_FILE_LINES]
        self.assertEqual({relative(p) for p in long}, set(LONG_FILES))
        large = {
            name: count
            for path in code_files()
            for name, count in classes(path.read_text())
            if count > MAX_CLASS_FUNCTIONS
        }
        self.assertEqual(set(large), set(LARGE_CLASSES), large)

    def test_the_server_reads_the_time_only_from_its_clock(self):
        machine = re.compile(r"_clock::now|\bclock_type::now|\btime\((nullptr|NULL|0)\)")
        files_of_server = [path for path in code_files() if relative(path).startswith("server/")]
        found = {relative(path) for path in files_of_server if machine.search(path.read_text())}
        self.assertEqual(found, set(MACHINE_TIME))

    def test_a_forwarding_backend_forwards_every_operation(self):
        # The compiler finds missing operations only if Backend does not define them itself.
        backend = (ROOT / "kernels/backend.h").read_text().split("\nclass Backend {\n")[1].split("\n};\n")[0]
        forwarding = (ROOT / "kernels/forwarding_backend.h").read_text()
        operations = sorted(re.findall(r"^  virtual [\w:<>*& ]*?(\w+)\(", backend, re.MULTILINE))
        overridden = re.findall(r"^  [\w:<>*& ]*?(\w+)\([^{;]*\)(?: const)? override \{", forwarding, re.MULTILINE)
        self.assertGreater(len(operations), 30)
        self.assertEqual(sorted(overridden), operations)
        for name in set(operations):
            self.assertRegex(forwarding, rf"\binner_\.{name}\(")

    def test_a_type_is_defined_once(self):
        # If two types have the same name, the linker keeps the inline functions of only one of them.
        places = collections.defaultdict(list)
        for path in code_files():
            if relative(path) not in STAND_INS:
                for name in types_of(path.read_text()):
                    places[name].append(relative(path))
        self.assertEqual({name: files for name, files in places.items() if len(files) > 1}, {})

    def test_the_classes_of_the_scheduler_include_only_lower_ones(self):
        faults = []
        for name, below in SCHEDULER_ARROWS.items():
            for suffix in (".h", ".cc"):
                included = OURS.findall((ROOT / f"engine/{name}{suffix}").read_text())
                for other in SCHEDULER:
                    if f"engine/{other}.h" in included and other not in (name, *below):
                        faults.append(f"engine/{name}{suffix} includes engine/{other}.h")
        self.assertEqual(faults, [])

    def test_the_measure_of_classes_works(self):
        members = """
  explicit A(int x) : x_(x) {}
  A(const A&) = delete;
  int f() const { if (x_) { return g(x_); } return 0; }
  virtual void g(int x) = 0;
  template <class T> static T h(T x) { return x; }
  bool operator()(int) const;
  struct B { void k(); int x{}; };
  enum class C { kOne };
  std::function<void(int)> done;
  int x_ = f(1);
  std::vector<int> y_{1, 2};  // g()
"""
        self.assertEqual(list(classes("class A final : public B<int> {\n" + members + "};")), [("A", 5), ("B", 1)])
        self.assertEqual(list(classes("class A;\nenum class B { kOne };\nvoid f(struct C c) {}\n")), [])

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

    def test_every_test_asserts_something(self):
        for path in files("tests/**/*_test.cc"):
            for name, body in tests_of(path.read_text()):
                with self.subTest(f"{relative(path)}: {name}"):
                    self.assertRegex(body, r"EXPECT_|ASSERT_|FAIL\(|SUCCEED\(|expect_|check_")

    def test_tests_are_extracted_from_a_file(self):
        text = "TEST(A, One) { run(); }\n\nTEST_F(A, Two) {\n  EXPECT_TRUE(run());\n}\n\nvoid helper() {\n}\n"
        self.assertEqual(tests_of(text), [("A, One", "{ run(); }"), ("A, Two", "{\n  EXPECT_TRUE(run());\n}")])

    def test_tests_that_docs_name_exist(self):
        test = re.compile(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", re.MULTILINE)
        names = [".".join(found) for path in files("*_test.cc") for found in test.findall(path.read_text())]
        for path in files("docs/*.md"):
            for named in re.findall(r"`([A-Z]\w*[a-z]\w*\.(?:[A-Z]\w*)?\*?)`", path.read_text()):
                with self.subTest(relative(path)):
                    self.assertTrue(fnmatch.filter(names, named), f"{named} is no test")

    def test_the_program_has_the_same_description_everywhere(self):
        said = re.findall(r"Program program\((.*?),\s*RUNNEL_VERSION", (ROOT / "cli/main.cc").read_text(), re.DOTALL)
        words = "".join(re.findall(r'"([^"]*)"', said[0]))
        for name in ("docker/Dockerfile", "packaging/CMakeLists.txt"):
            self.assertIn(words, (ROOT / name).read_text(), name)

    def test_headers_begin_with_their_purpose(self):
        # *_inl.h files are included several times on purpose.
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

    def test_the_map_lists_every_file(self):
        checked = subprocess.run(
            [sys.executable, ROOT / "scripts/map", "--check"], capture_output=True, text=True, check=False
        )
        self.assertEqual(checked.returncode, 0, checked.stderr)

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
