"""A progress bar for management commands."""

from django.core.management.base import OutputWrapper

WIDTH = 30


class Progress:
    """Draws on `stream` how much of `total` is done: in place on a terminal, a line each tenth elsewhere."""

    def __init__(self, stream: OutputWrapper, label: str, total: int) -> None:
        self.stream = stream
        self.label = label
        self.total = total
        self.done = 0
        self.drawn = -1
        self.step = 1 if stream.isatty() else 10

    def advance(self, by: int) -> None:
        self.done += by
        percent = 100 * self.done // self.total
        if percent // self.step == self.drawn // self.step:
            return
        self.drawn = percent
        bar = ("#" * (WIDTH * percent // 100)).ljust(WIDTH, ".")
        in_place = self.stream.isatty() and self.done < self.total
        self.stream.write(
            f"{self.label} [{bar}] {percent:3}% {self.done:,}/{self.total:,}",
            style_func=str,
            ending="\r" if in_place else "\n",
        )
