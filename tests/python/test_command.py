"""runnel_client.command: errors of one line. If a package is missing, they say how to install it here."""

import contextlib
import io
import os
import sys
import unittest
import unittest.mock

from runnel_client import command, convert
from runnel_client.errors import BundleError


def pretend(**changes):
    """Patches sys with prefix, base_prefix or executable of another interpreter."""
    return unittest.mock.patch.multiple(sys, **changes)


class RemedyTest(unittest.TestCase):
    def remedy(self, extra, is_debian=False, is_managed=False, is_checkout=True, **interpreter):
        def exists(path):
            return is_debian if path == "/etc/debian_version" else is_managed

        with (
            pretend(**interpreter),
            unittest.mock.patch.object(os.path, "exists", exists),
            unittest.mock.patch.object(command.pathlib.Path, "exists", lambda path: is_checkout),
        ):
            return command.remedy(extra)

    def test_the_python_of_debian_gets_packages_of_debian(self):
        found = self.remedy("convert", is_debian=True, is_managed=True, prefix="/usr", base_prefix="/usr")
        self.assertEqual(found, "sudo apt install python3-numpy python3-torch")

    def test_a_virtual_environment_gets_pip(self):
        venv = {"executable": "/v/bin/python", "prefix": "/v", "base_prefix": "/usr"}
        found = self.remedy("train", is_debian=True, is_managed=True, is_checkout=False, **venv)
        self.assertEqual(found, "/v/bin/python -m pip install 'runnel-client[train]'")
        self.assertEqual(self.remedy("", is_checkout=False, **venv), "/v/bin/python -m pip install runnel-client")

    def test_a_checkout_is_named_by_its_folder(self):
        here = {"executable": "python", "prefix": "/opt", "base_prefix": "/opt"}
        root = command.pathlib.Path(command.__file__).resolve().parents[2]
        self.addCleanup(os.chdir, os.getcwd())
        for folder, path in ((root, "./python"), (root / "training", "../python")):
            os.chdir(folder)
            self.assertEqual(self.remedy("bench", **here), f"python -m pip install '{path}[bench]'")

    def test_a_python_that_refuses_pip_gets_a_virtual_environment(self):
        here = {"executable": "/opt/bin/python3", "prefix": "/opt", "base_prefix": "/opt"}
        found = self.remedy("convert", is_managed=True, is_checkout=False, **here)
        self.assertEqual(
            found, "/opt/bin/python3 -m venv .venv && .venv/bin/python -m pip install 'runnel-client[convert]'"
        )


class ConvertTest(unittest.TestCase):
    def test_a_missing_checkpoint_is_reported_before_missing_torch(self):
        with (
            unittest.mock.patch.dict(sys.modules, {"torch": None}),
            self.assertRaisesRegex(BundleError, "/no/such.pth: no such file"),
        ):
            convert.convert(["/no/such.pth", "--out", "out"])


class RunTest(unittest.TestCase):
    def run_tool(self, tool):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            return command.run("tool", tool, []), err.getvalue()

    def failing(self, error):
        def tool(argv):
            raise error

        return tool

    def test_the_exit_status_is_that_of_the_tool(self):
        self.assertEqual(self.run_tool(lambda argv: None), (0, ""))
        self.assertEqual(self.run_tool(lambda argv: 3), (3, ""))

    def test_an_error_is_one_line(self):
        self.assertEqual(self.run_tool(self.failing(BundleError("a\n  b"))), (2, "tool: error: a b\n"))

    def test_an_error_does_not_control_the_terminal(self):
        said = self.run_tool(self.failing(BundleError("tensor '\x1b[2J\udc80\u202eé'")))
        self.assertEqual(said, (2, "tool: error: tensor '\\x1b[2J\\udc80\\u202eé'\n"))

    def test_an_interrupted_tool_says_so_in_one_line(self):
        self.assertEqual(self.run_tool(self.failing(KeyboardInterrupt())), (130, "\ntool: interrupted\n"))

    def test_a_wrong_flag_names_the_help(self):
        parser = command.Parser("tool", None, "")
        status, err = self.run_tool(lambda argv: parser.parse_args(["--colour"]))
        self.assertEqual((status, err), (2, "tool: error: unrecognized arguments: --colour (see tool --help)\n"))

    def test_a_missing_module_of_the_package_itself_is_raised(self):
        with self.assertRaises(ImportError):
            command.missing(ImportError("x", name="runnel_client.nothing"))
        self.assertIn("has no module 'torch'", str(command.missing(ImportError("x", name="torch"))))


if __name__ == "__main__":
    unittest.main()
