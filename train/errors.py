"""What a user can cause, and how every command line tells it."""

import io
import os
import sys
from collections.abc import Callable

REFUSED = 2
BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE


class UserError(Exception):
    """A fault in a command, a config or a file: the message is one readable line naming the thing and the remedy."""


def exit_status(command: Callable[[], int]) -> int:
    """Run a command and return its status, or REFUSED after one line `error: ...` on standard error.

    Faults of the disk that nobody foresaw are told in the same way. Characters that the terminal's encoding lacks are
    printed as escapes. Nobody reading the output any more (`| head`) is no error worth a word.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = command()
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
