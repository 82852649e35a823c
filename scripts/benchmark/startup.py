"""What a user waits for before training runs: seconds from the start of the process, of the clock and of the CPU.

`python`, `import jax`: an interpreter that does nothing, and one that imports JAX and finds its devices, as floors.
`help`: python -m train --help. `first update`: python -m train --config=configs/base.py until the first update is done,
imports and compilation in it: with nothing in the compilation cache; with what the run before left there; and that
same study, stopped, when the command is given again. `one update`: the whole command with run.steps=1, with
evaluation, test, checkpoint and table. Files that Python reads may be in the system's cache throughout.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from pathlib import Path

from child import HERE
from measurement import Row, row

from train.errors import UserError

ROOT = HERE.parents[1]
REPEATS = 5
LIMIT = 300.0  # seconds for one command
STOPPED = 128 + signal.SIGTERM
FIRST_UPDATE = [sys.executable, str(HERE / "contenders" / "first_update.py")]
TRAIN = [sys.executable, "-m", "train"]
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import jax": [sys.executable, "-c", "import jax; jax.devices()"],
    "help": [*TRAIN, "--help"],
}


def seconds_of(command: list[str], cache: Path, status: int = 0) -> tuple[float, float]:
    """(wall clock, CPU) of a command, or up to the moment that it tells of on standard error.

    Raises UserError where it ends with another status; it is killed after LIMIT.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = {**inherited, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(cache)}
    with tempfile.TemporaryFile("w+") as said:
        begun = time.monotonic()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        timer = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            _, ended, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
        wall = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(ended)
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode != status:
        raise UserError(f"{' '.join(command)}: status {process.returncode}: {' '.join(lines[-1:])}")
    for line in lines:
        if line.startswith('{"monotonic"'):
            moment = json.loads(line)
            return moment["monotonic"] - begun, moment["cpu"]
    return wall, usage.ru_utime + usage.ru_stime


def once(folder: Path) -> dict[str, tuple[float, float]]:
    """Every command once, by what it measures. `folder` is empty."""
    times = {name: seconds_of(command, folder) for name, command in COMMANDS.items()}
    for what, status, command, extra in (
        ("first update", STOPPED, FIRST_UPDATE, []),
        ("one update", 0, TRAIN, ["--config.run.steps=1", "--config.optim.warmup_steps=0"]),
    ):
        cache = folder / what
        arguments = [*command, "--config=configs/base.py", *extra]
        for number, state in enumerate(("nothing cached", "cached")):
            workdir = f"--workdir={folder / f'{what} {number}'}"
            times[f"{what}, {state}"] = seconds_of([*arguments, workdir], cache, status)
        if status == STOPPED:
            times[f"{what}, resumed"] = seconds_of([*arguments, workdir], cache, status)
    return times


def rows(options: Namespace) -> list[Row]:
    """Measure everything so many times; with --quick once."""
    rounds = []
    for number in range(options.repeats or (1 if options.quick else REPEATS)):
        print(f"round {number + 1}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(once(Path(folder)))
    return [
        row("startup", "train", quantity, "s", [times[what][place] for times in rounds], {"what": what})
        for place, quantity in enumerate(("wall clock", "CPU time"))
        for what in rounds[0]
    ]
