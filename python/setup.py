"""Generates the messages of the wire contract into the package when it is built from a checkout; see pyproject.toml."""

import pathlib
import sys

from setuptools import setup

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from runnel_client import messages

if messages.CONTRACT.is_dir() and messages.is_stale():
    messages.generate()
setup()
