"""How much memory a server may come to use, as it says itself."""

import re
import subprocess
import threading

PATIENCE = 600.0  # seconds until a server counts as one that never logs its memory, or never ends


def most_of(runnel: str, words: list[str]) -> int:
    """`most` of the log line `memory` of `runnel serve` with these words."""
    most, logged, gave_up = 0, "", threading.Event()
    with subprocess.Popen([runnel, *words], stderr=subprocess.PIPE, text=True) as process:

        def give_up() -> None:
            gave_up.set()
            process.kill()

        timer = threading.Timer(PATIENCE, give_up)
        timer.start()
        try:
            for line in process.stderr or ():
                logged += line
                found = re.search(r"\bmost\W+(\d+)", line)
                if found:
                    most = int(found[1])
                    process.terminate()
            process.wait()
        finally:
            timer.cancel()
    awaited = "the server's end after SIGTERM" if most > 0 else "the log line `memory`"
    assert not gave_up.is_set(), f"waited {PATIENCE:g} s for {awaited}:\n{logged}"
    assert most > 0, logged
    return most
