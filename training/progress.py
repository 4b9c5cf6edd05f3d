"""Shows the progress of a training in one line, which is redrawn on a terminal, or else printed every half minute."""

import sys
import time


class Progress:
    def __init__(self, name, unit, steps, step):
        self.name, self.unit, self.steps = name, unit, steps
        self.first_step, self.start, self.written = step, time.monotonic(), 0.0
        self.redraws = sys.stderr.isatty()

    def show(self, step, bits, values_per_step):
        """After `step` steps, the last of which cost `bits` per item."""
        now = time.monotonic()
        is_last = step == self.steps
        if not is_last and now - self.written < (0.2 if self.redraws else 30):
            return
        self.written = now
        rate = (step - self.first_step) / (now - self.start)
        filled = 24 * step // self.steps
        line = (
            f"{self.name} [{'#' * filled}{'.' * (24 - filled)}] {step:,}/{self.steps:,}  "
            f"{bits:.4f} bits/{self.unit}  {rate * values_per_step:,.0f} values/s  "
            f"{duration((self.steps - step) / rate)} left"
        )
        end = "\n" if is_last or not self.redraws else ""
        print(("\r\033[K" if self.redraws else "") + line, end=end, file=sys.stderr, flush=True)


def duration(seconds):
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
