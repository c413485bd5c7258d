"""The exceptions that mean: the input is wrong, not the program."""


class InputError(Exception):
    """Bad input, told in one line that names the input and the remedy.

    The command line prints the message alone and ends with exit code 1; no traceback is shown.
    """


class UsageError(InputError):
    """Options that a command does not have or cannot understand; exit code 2."""
