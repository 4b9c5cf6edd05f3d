"""Adds files from elsewhere in the checkout to the package: the wire contract, and the licence. See pyproject.toml."""

import pathlib
import shutil
import sys

from setuptools import setup

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from runnel_client import messages

LICENSE = messages.CONTRACT.parent / "LICENSE"
needed = []
if messages.CONTRACT.is_dir():
    shutil.copyfile(LICENSE, pathlib.Path(__file__).with_name("LICENSE"))
    if messages.is_stale() and not messages.protoc():
        needed = ["grpcio-tools"]  # pip installs it for the build, and runs this file again
    elif messages.is_stale():
        messages.generate()
setup(setup_requires=needed)
if needed:
    messages.generate()  # raises, because grpcio-tools is not installed
