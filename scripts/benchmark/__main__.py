"""Measure this project beside others: python scripts/benchmark SECTION. --help tells the sections.

Other libraries live in an environment of their own, made by `make bench-setup`; what is absent is told in one line and
left out.
"""

import argparse
import ast
import importlib
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measurement import Row
from table import heading, to_json, to_text

from train.errors import UserError, exit_status
from train.report.files import check_files

HERE = Path(__file__).resolve().parent
BENCH_PYTHON = HERE.parents[1] / ".venv-bench" / "bin" / "python"


def _rows(section: str, options: argparse.Namespace) -> list[Row]:
    found: list[Row] = importlib.import_module(section).rows(options)
    return found


SECTIONS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    name: partial(_rows, name) for name in ("diagnosis", "engine", "length", "scores", "startup", "translation")
}


def explained() -> str:
    """The sections, each with the docstring of its file."""
    texts = {name: ast.get_docstring(ast.parse((HERE / f"{name}.py").read_bytes())) or "" for name in SECTIONS}
    return "sections:\n\n" + "\n\n".join(
        f"{name}\n" + "".join(f"  {line}\n" if line else "\n" for line in text.splitlines()).rstrip()
        for name, text in texts.items()
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python scripts/benchmark",
        description="Measure this project beside others, in turn on the same machine.",
        epilog=explained(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("section", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="the smallest size, once: does it work here?")
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds at each size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to this file, one a line")
    parser.add_argument("--arch", metavar="NAME", help="model of engine: transformer (default), recurrent")
    parser.add_argument("--data", type=Path, metavar="DIR", help="parallel text, for translation")
    parser.add_argument(
        "--python", default=str(BENCH_PYTHON), help="of the environment of other libraries (default: .venv-bench)"
    )
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Measure, print the tables, write the rows. Raises UserError for a section that there is not."""
    if options.section not in SECTIONS:
        raise UserError(f"there is no section {options.section!r}; choose from {', '.join(SECTIONS)}")
    if options.repeats is not None and options.repeats < 1:
        raise UserError(f"--repeats={options.repeats}: must be at least 1")
    for flag, section in (("arch", "engine"), ("data", "translation")):
        given = getattr(options, flag)
        if given is not None and options.section != section:
            raise UserError(f"--{flag}={given}: it is of the section {section}; leave it out")
    check_files(json=options.json)
    if options.json is not None:
        options.json.write_text("", encoding="utf-8")  # refused now rather than after an hour
    rows = SECTIONS[options.section](options)
    if not rows:
        raise UserError(f"{options.section}: nothing could be measured")
    print(f"{heading(options.section, options.python)}\n\n{to_text(rows)}")
    if options.json is not None:
        options.json.write_text(to_json(rows), encoding="utf-8")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0; 2 after one line that says why; 130 or 143 where a signal ended it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that children are ended
    options = parse(arguments)
    try:
        return exit_status(lambda: run(options))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
