"""Messages of failed calls use the words of the Python client. Needs no server."""

import inspect
import pathlib
import re
import unittest

import support

support.require("grpc", "google.protobuf")

from runnel_client import client, fault
from runnel_client.options import Options

HEADER = pathlib.Path(support.ROOT, "base", "fields.h")
FIELDS = re.findall(r'string_view k\w+ = "([\w.]+)";', HEADER.read_text())
# The client reads all pages itself, so no function takes page tokens.
WITHOUT_OPTION = {"page_size", "page_token"}


def place(field):
    return f"\x1f{field}\x1f"


def hint(text):
    return f"\x1e{text}\x1e"


def parameters():
    """The names of all options that a caller may set."""
    names = set(Options.__annotations__)
    for owner in (client.Client, client.Session):
        for _, function in inspect.getmembers(owner, inspect.isfunction):
            names |= set(inspect.signature(function).parameters)
    return names


class FaultTest(unittest.TestCase):
    def test_every_field_has_the_name_of_an_option(self):
        self.assertGreater(len(FIELDS), 30)
        given = parameters()
        for field in FIELDS:
            with self.subTest(field):
                word = fault.word_of(field)
                self.assertEqual(word == "", field in WITHOUT_OPTION)
                self.assertIn(word, given | {""})
                self.assertEqual(fault.rendered(place(field) + " is wrong"), f"{word or field} is wrong")

    def test_a_hint_without_a_matching_option_is_left_out(self):
        message = "full" + hint("; set " + place("page_size")) + hint(", or set " + place("delivery.max_delay"))
        self.assertEqual(fault.rendered(message + "; sorry"), "full, or set message_delay; sorry")

    def test_no_marks_are_left_in_a_message(self):
        for message in (hint("a"), place("samples"), "a" + hint("b " + place("text")), "plain"):
            self.assertNotRegex(fault.rendered(message), "[\x1e\x1f]")


if __name__ == "__main__":
    unittest.main()
