#!/usr/bin/env python3
"""Copy the inputs of a build's links, so that bench/gpu/gpu_relink can link the programs again on another machine.

    pack_links.py BUILD OUT PROGRAM...

OUT gets each object and archive of the programs' links once; OUT/PROGRAM.link names them, one argument a line, relative
to OUT; and OUT/kernels.nvcc has the flags that compile the kernels. A program without the kernels is left out.
"""

import json
import pathlib
import shlex
import shutil
import subprocess
import sys

KERNELS = "librunnel_kernels.a"


def link_of(build, program):
    """The arguments that link a program, except the compiler and the output."""
    told = subprocess.run(
        ["ninja", "-C", build, "-t", "commands", program], text=True, stdout=subprocess.PIPE, check=True
    ).stdout
    for line in reversed(told.splitlines()):
        # ": && c++ ARGUMENTS && more": CMake adds the commands after the link.
        for command in line.split(" && "):
            words = shlex.split(command)
            if "-o" in words and pathlib.PurePath(words[words.index("-o") + 1]).name == program and "-c" not in words:
                at = words.index("-o")
                return words[1:at] + words[at + 2 :]
    sys.exit(f"pack_links.py: {build} has no link of {program}")


def found(word, build, folders):
    """The file that an argument names, or None if it names no file or a library that every compiler has."""
    if word.startswith("-l"):
        names = [folder / f"lib{word[2:]}.a" for folder in folders]
        return next((name for name in names if name.exists()), None)
    if not word.endswith((".o", ".a")):
        return None
    return build / word  # joining keeps an absolute path


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: pack_links.py BUILD OUT PROGRAM...")
    build, out, programs = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3:]
    out.mkdir(parents=True)
    copied: dict[pathlib.Path, str] = {}
    for program in programs:
        words = link_of(build, program)
        if not any(pathlib.PurePath(word).name == KERNELS for word in words):
            continue
        folders = [build / word[2:] for word in words if word.startswith("-L")]
        link = []
        for word in words:
            path = found(word, build, folders)
            if path is None:
                link += [] if word.startswith(("-L", "-Wl,-rpath")) else [word]
                continue
            if path not in copied:
                name = KERNELS if path.name == KERNELS else f"{len(copied)}-{path.name}"
                shutil.copy(path, out / name)
                copied[path] = name
            link.append(copied[path])
        (out / f"{program}.link").write_text("\n".join(link) + "\n", encoding="utf-8")
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    command = next(one["command"] for one in commands if one["file"].endswith("cuda_backend.cu"))
    words = shlex.split(command)
    flags = [
        word
        for word in words[words.index("-forward-unknown-to-host-compiler") :]
        if not word.startswith(("-I", "-isystem"))
    ]
    (out / "kernels.nvcc").write_text("\n".join(flags[: flags.index("-x")]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
