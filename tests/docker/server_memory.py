"""How much memory a server may come to use, as it says itself."""

import re
import subprocess


def most_of(runnel: str, words: list[str]) -> int:
    """`most` of the log line `memory` of `runnel serve` with these words."""
    most = 0
    with subprocess.Popen([runnel, *words], stderr=subprocess.PIPE, text=True) as process:
        logged = ""
        for line in process.stderr or ():
            logged += line
            found = re.search(r"\bmost\W+(\d+)", line)
            if found:
                most = int(found[1])
                process.terminate()
    assert most > 0, logged
    return most
