"""One process of a contender, as the host sees it: it is told to go, and every wait for its answer is bounded."""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).resolve().parent
LAST_SECONDS = 10.0  # from the end of its output to its own

Answer = dict[str, Any]


class Lost(Exception):
    """A contender that cannot go on; the message is one line that says why."""


class Child:
    """One process of a contender. `environment` is added to that of this process."""

    def __init__(self, file: str, spec: dict[str, Any], python: str, environment: Mapping[str, str]):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._pending = b""
        try:
            self._process = subprocess.Popen(
                [python, str(HERE / "serve.py"), file, json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,
                # Everything is measured on the CPU, whatever else there is.
                env={**os.environ, **environment, "JAX_PLATFORMS": "cpu"},
            )
        except OSError as error:
            self._errors.close()
            raise Lost(f"{python}: {error.strerror}; make bench-setup, or name another with --python") from error

    def go(self) -> None:
        """Let it make one repeat."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `answer` tells why
            self._process.stdin.write(b"go\n")

    def answer(self, limit: float) -> Answer:
        """Its next line. Raises Lost where it dies, misses a package or says nothing for `limit` seconds."""
        assert self._process.stdout is not None
        until = time.monotonic() + limit
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise Lost(f"no answer within {limit:g} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise Lost(self._obituary())
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        said: Answer = json.loads(line)
        if "missing" in said:
            raise Lost(f"{said['missing']}; make bench-setup")
        return said

    def _obituary(self) -> str:
        """How it ended, with the last line that it left on standard error."""
        until, ended = time.monotonic() + LAST_SECONDS, os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, self._process.pid, ended) is None and time.monotonic() < until:
            time.sleep(0.01)
        self.close()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"ended with status {self._process.returncode}: {lines[-1] if lines else 'it said nothing'}"

    def close(self) -> None:
        """End it and what it started."""
        if self._process.returncode is None:  # until it is waited for, nobody else can have its number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._errors.close()
