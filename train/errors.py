"""What a user can cause."""


class UserError(Exception):
    """A fault in a command, a config or a file: the message is one readable line naming the thing and the remedy.

    Entry points print it as ``error: <line>`` on standard error and end with status 2.
    """
