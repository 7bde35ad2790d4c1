"""Messages in the words of the command line: the core and the loaders speak of Python's arguments, not of options."""

from __future__ import annotations

import re
from collections.abc import Iterable

_REPLACED = (
    # What the command line has no option for is left out.
    (r"; (if it is not a mistake, )?pass features=\S*( if that is meant)?", ""),
    (r"; give a file of it, or give the folder to load_folds", "; give a file of it"),
    (r"; read it with read_svmlight", ""),
    (r"\blabels\[(\d+)\] = (\S+)", lambda found: f"the label {found[2]} in row {int(found[1]) + 1}"),
    (r"\bscores\[(\d+)\] = (\S+)", lambda found: f"the score {found[2]} in row {int(found[1]) + 1}"),
    (r'\b(gain|max_grade)="?(\w+)"?', r":\1=\2 behind the metric's name"),
)


def in_options(message: str, options: Iterable[str]) -> str:
    """A message about arguments in the words of a command that has these options, named as in Python: ``first_index=0``
    becomes ``--first-index 0``, ``mu must be ...`` becomes ``--mu must be ...``.

    >>> in_options("if all count from 0, pass first_index=0", ["first_index"])
    'if all count from 0, pass --first-index 0'
    >>> in_options("mu must be a finite number at least 0, got -1.0", ["mu"])
    '--mu must be a finite number at least 0, got -1.0'
    """
    for pattern, replacement in _REPLACED:
        message = re.sub(pattern, replacement, message)
    for name in options:
        flag = f"--{name.replace('_', '-')}"
        message = re.sub(rf"(?<![-\w:]){name}=(?=\S)", f"{flag} ", message)
        message = re.sub(rf"^{name}(?= must )", flag, message)
    return message
