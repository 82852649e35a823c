"""What a user can cause, and how every command line tells it."""

import io
import os
import sys
from collections.abc import Callable

REFUSED = 2
BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE


class UserError(Exception):
    """A fault in a command, a config or a file: the message is one readable line naming the thing and the remedy."""


def exit_status(command: Callable[[], int | None]) -> int:
    """Run a command and return its status (None is 0), or REFUSED after one line `error: ...` on standard error.

    Faults of the disk that nobody foresaw are told in the same way. Characters that the terminal's encoding lacks are
    printed as escapes. Nobody reading the output any more (`| head`) is no error worth a word.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except UserError as error:
        reason = str(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        return BROKEN_PIPE
    except OSError as error:
        reason = f"{error.filename or 'the disk or the system'}: {error.strerror or error}"
    print("error:", "\\n".join(reason.splitlines()), file=sys.stderr)
    return REFUSED


def _open_closed_streams() -> None:
    """Give a process that was started without standard output or error the null device in its place.

    Otherwise the next file it opens would get that number, and with it what was meant for a terminal.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
