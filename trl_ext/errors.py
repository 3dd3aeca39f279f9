"""The one exception that means "the person at the keyboard can fix this"."""


class UserError(ValueError):
    """A mistake or a missing piece that the user can put right; the message names the remedy.

    The command line prints it as one line without a traceback.
    """


class UsageError(UserError):
    """A wrong call of the command line: exit status 2."""
