"""Frames between the processes of the sandbox, and values in them: plain data as JSON, never pickles.

Whatever the program under test sends is read with [`decoded`], which makes nothing but plain Python values.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, timedelta
from datetime import time as day_time
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_FRAME = 16 << 20  # bytes
MAX_JOB = 256 << 20  # bytes of what the trainer's process and the tests send, which nobody hostile has written
ALARM = struct.Struct("=d")  # a deadline, as of time.monotonic
_LENGTH = struct.Struct("!I")
_SMALL = 1 << 60

# How values that are sent as text are read.
_AS_TEXT: dict[str, Callable[[str], Any]] = {
    "Decimal": Decimal,
    "Fraction": lambda text: Fraction(*map(int, text.split("/"))),  # its own reader also takes 1e30000000
}
_TEXT_TYPES = {Decimal: "Decimal", Fraction: "Fraction"}
_AS_ISO: dict[str, Any] = {"datetime": datetime, "date": date, "time": day_time}
_LISTS: dict[str, Callable[..., Any]] = {"l": list, "t": tuple, "s": set, "f": frozenset, "q": deque}
_DICTS: dict[str, Callable[..., Any]] = {"d": dict, "o": OrderedDict, "c": Counter, "e": dict}
# tags whose values can be keys of a mapping, and the types of what JSON holds behind a tag
_KEY_TAGS = frozenset("tfibxrDTI")
_PARTS: dict[str, list[type]] = {
    "i": [str],
    "b": [str],
    "B": [str],
    "T": [str, str],
    "I": [str, str],
    "x": [float, float],
    "D": [int, int, int],
}
_LIST_TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f", deque: "q"}
_DICT_TAGS = {dict: "d", OrderedDict: "o", Counter: "c", defaultdict: "e"}

Other = Callable[[Any], list[Any]]


class WireError(ValueError):
    """A frame or value that cannot be sent or read."""


def encoded(value: Any, other: Other | None = None) -> Any:
    """A value as what JSON can hold; lists carry a tag for their type.

    Only exact types count: an instance of a subclass, whose `__eq__` may lie, is no plain value.

    Args:
        value (`Any`): None, numbers, text, bytes, dates and the containers of the standard library, nested.
        other (`Callable`, *optional*): called for anything else; it returns the tagged list to send.

    Raises:
        WireError: For any other value where `other` is not given.

    Example:

    ```python
    >>> encoded((1, "a"))
    ['t', 1, 'a']
    >>> decoded(encoded({1: {2.5}}))
    {1: {2.5}}

    ```
    """
    kind: Any = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else ["i", hex(value)]
    if kind in _LIST_TAGS:
        return [_LIST_TAGS[kind], *[encoded(item, other) for item in value]]
    if kind in _DICT_TAGS:
        pairs = [[encoded(key, other), encoded(item, other)] for key, item in value.items()]
        return [_DICT_TAGS[kind], *pairs]
    if kind in (bytes, bytearray):
        return ["b" if kind is bytes else "B", value.hex()]
    found = _rare(kind, value)
    if found is not None:
        return found
    if other is None:
        raise WireError(f"no plain value: {kind.__name__}")
    return other(value)


def _rare(kind: type, value: Any) -> list[Any] | None:
    if kind is complex:
        return ["x", value.real, value.imag]
    if kind is range:
        return ["r", *(encoded(part) for part in (value.start, value.stop, value.step))]
    if kind is timedelta:
        return ["D", value.days, value.seconds, value.microseconds]
    if kind in _TEXT_TYPES:
        return ["T", _TEXT_TYPES[kind], str(value)]
    for name, one in _AS_ISO.items():
        if kind is one:
            return ["I", name, value.isoformat()]
    return None


def decoded(value: Any, other: Other | None = None) -> Any:
    """The value that [`encoded`] wrote; `other(tagged)` makes what is no plain value.

    Raises:
        WireError: For anything that [`encoded`] does not write.
    """
    if not isinstance(value, list):
        if isinstance(value, dict):
            raise WireError("a mapping without its tag")
        return value
    if not value or not isinstance(value[0], str):
        raise WireError("a list without its tag")
    tag = value[0]
    try:
        if tag in _LISTS:
            return _LISTS[tag](decoded(item, other) for item in value[1:])
        if tag in _DICTS:
            return _DICTS[tag]({decoded(key, other): decoded(item, other) for key, item in value[1:]})
        return _decoded_rare(tag, value, other)
    except WireError:
        raise
    except (TypeError, ValueError, IndexError, KeyError, ArithmeticError, AttributeError) as error:
        raise WireError(f"bad value: {type(error).__name__}") from None


def _decoded_rare(tag: str, value: list[Any], other: Callable[[list[Any]], Any] | None) -> Any:
    if tag == "i":
        return int(value[1], 16)
    if tag in ("b", "B"):
        return bytes.fromhex(value[1]) if tag == "b" else bytearray.fromhex(value[1])
    if tag == "x":
        return complex(value[1], value[2])
    if tag == "r":
        return range(*(decoded(part) for part in value[1:4]))
    if tag == "D":
        return timedelta(*value[1:4])
    if tag == "T":
        return _AS_TEXT[value[1]](value[2])
    if tag == "I":
        return _AS_ISO[value[1]].fromisoformat(value[2])
    if other is None:
        raise WireError(f"unknown tag {tag!r:.20}")
    return other(value)


def checked(value: Any, *, is_key: bool = False) -> Any:
    """An encoding as it is, once every list in it has the form that [`encoded`] gives it; no value is made.

    Whoever compares encodings part by part may rely on their form behind it.

    Args:
        value (`Any`): what has been sent.
        is_key (`bool`, *optional*, defaults to `False`): whether it stands for a key, or for an item of a set.

    Raises:
        WireError: For anything else.

    Example:

    ```python
    >>> checked(["d", ["a", ["l", 1]]])
    ['d', ['a', ['l', 1]]]
    >>> checked(["d", 5])
    Traceback (most recent call last):
    reward_funcs._sandbox_wire.WireError: a mapping without pairs

    ```
    """
    if type(value) is not list:
        if value is None or type(value) in (bool, int, float, str):
            return value
        raise WireError("a mapping without its tag")
    if not value or type(value[0]) is not str:
        raise WireError("a list without its tag")
    tag, parts = value[0], value[1:]
    if is_key and tag not in _KEY_TAGS:
        raise WireError("a key that cannot be one")
    if tag in _LISTS:
        for part in parts:
            checked(part, is_key=is_key or tag in ("s", "f"))
    elif tag in _DICTS:
        for pair in parts:
            if type(pair) is not list or len(pair) != 2:
                raise WireError("a mapping without pairs")
            checked(pair[0], is_key=True)
            checked(pair[1])
    elif tag == "r":
        if len(parts) != 3 or not all(
            type(one) is int or (type(checked(one)) is list and one[0] == "i") for one in parts
        ):
            raise WireError("a range without its numbers")
    elif [type(part) for part in parts] != _PARTS.get(tag):
        raise WireError("unknown tag")
    return value


def packed(message: Any, most: int = MAX_FRAME) -> bytes:
    """A frame: four bytes of length, then JSON.

    Raises:
        WireError: For a frame above `most` bytes.
    """
    data = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(data) > most:
        raise WireError("the message is too long")
    return _LENGTH.pack(len(data)) + data


def loaded(data: bytes) -> Any:
    """The message of a frame's bytes.

    Raises:
        WireError: For bytes that are not JSON.
    """
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise WireError("not JSON") from None


class Channel:
    """Frames over a stream socket, with a deadline.

    Args:
        sock (`socket.socket`): a connected stream socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, message: Any, most: int = MAX_FRAME) -> None:
        """Send one message.

        Raises:
            OSError: When the other side is gone.
            WireError: For a message above `most` bytes.
        """
        self.sock.sendall(packed(message, most))

    def receive(self, deadline: float | None = None, most: int = MAX_FRAME) -> Any:
        """The next message.

        Args:
            deadline (`float`, *optional*): a time of `time.monotonic`.
            most (`int`, *optional*, defaults to `MAX_FRAME`): bytes of the longest message that is taken.

        Raises:
            EOFError: When the other side has closed.
            TimeoutError: When the deadline has passed.
            WireError: For a frame that is too long or is not JSON.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, deadline))
        if length > most:
            raise WireError("the message is too long")
        return loaded(self._exactly(length, deadline))

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < count:
            if deadline is None:
                self.sock.settimeout(None)
            else:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self.sock.settimeout(left)
            try:
                part = self.sock.recv(min(count - len(data), 1 << 20))
            except ConnectionError:
                raise EOFError from None
            if not part:
                raise EOFError
            data += part
        self.sock.settimeout(None)
        return bytes(data)
