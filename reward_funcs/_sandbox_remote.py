"""Objects of the program under test as the process of the tests sees them: each use is a request to the other process.

What comes back is plain data of the standard library, or a [`Remote`], which equals no plain value whatever it says of
itself: a program that patches `__eq__` only changes how its own objects compare with each other.
"""

from __future__ import annotations

import builtins
import importlib
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from reward_funcs._sandbox_answer import SAFE_MODULES
from reward_funcs._sandbox_wire import Channel, WireError, decoded, encoded

MAX_ITEMS = 1_000_000
_BUILTIN = types.BuiltinFunctionType


class AnswerGone(BaseException):  # a test that catches every Exception must not swallow it
    """The program's process has ended or is not answering; `reason` says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Remote:
    """An object of the program under test."""

    __slots__ = ("_client", "_kind", "_number")

    def __init__(self, client: Client, number: int, kind: str) -> None:
        object.__setattr__(self, "_client", client)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_kind", kind)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._client.call(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._client.operate("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._client.operate("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._client.operate("delete", self, name)

    def __iter__(self) -> Iterator[Any]:
        items = self._client.operate("iter", self)
        if not isinstance(items, Remote):
            raise TypeError("not an iterator")
        return items

    def __next__(self) -> Any:
        return self._client.operate("next", self)

    def __len__(self) -> Any:
        return self._client.operate("len", self)

    def __contains__(self, item: object) -> bool:
        return self._client.operate("contains", self, item) is True

    def __getitem__(self, key: Any) -> Any:
        return self._client.operate("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._client.operate("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._client.operate("delitem", self, key)

    def __str__(self) -> Any:
        return self._client.operate("str", self)

    def __repr__(self) -> Any:
        return self._client.operate("repr", self)

    def __bool__(self) -> bool:
        return self._client.operate("bool", self) is True

    def __hash__(self) -> int:
        return hash(("remote", self._number))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Remote):
            return False  # the program is not asked, or it could say yes to everything
        return self._number == other._number or self._client.operate("eq", self, other) is True

    def __instancecheck__(self, item: object) -> bool:
        return isinstance(item, Remote) and self._client.operate("isinstance", self, item) is True

    def _own(self, name: str, other: object) -> Any:
        """An operation between two objects of the program; with anything else the program has no say."""
        return self._client.operate(name, self, other) if isinstance(other, Remote) else NotImplemented

    def __lt__(self, other: object) -> Any:
        return self._own("lt", other)

    def __le__(self, other: object) -> Any:
        return self._own("le", other)

    def __gt__(self, other: object) -> Any:
        return self._own("gt", other)

    def __ge__(self, other: object) -> Any:
        return self._own("ge", other)

    def __add__(self, other: object) -> Any:
        return self._own("add", other)

    def __sub__(self, other: object) -> Any:
        return self._own("sub", other)

    def __mul__(self, other: object) -> Any:
        return self._own("mul", other)


class Client:
    """The test process's end of the connection to the program.

    Args:
        channel (`Channel`): to the program's process.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.deadline = time.monotonic()
        self.functions: list[Callable[..., Any]] = []
        self.exceptions: dict[str, type[Exception]] = {}

    def request(self, *message: Any) -> list[Any]:
        """Send a request and return the reply; the program's calls of the tests' functions are answered meanwhile.

        Raises:
            AnswerGone: When the program's process has ended, is late, or sends what cannot be read.
        """
        try:
            self.channel.send(list(message))
            while True:
                reply = self.channel.receive(self.deadline)
                if not isinstance(reply, list) or not reply:
                    raise WireError("no reply")
                if reply[0] != "callback":
                    return reply
                self.channel.send(self._called_back(*reply[1:]))
        except TimeoutError:
            raise AnswerGone("timeout") from None
        except (EOFError, OSError):
            raise AnswerGone("crash") from None
        except (WireError, TypeError, ValueError, IndexError, RecursionError, MemoryError):
            raise AnswerGone("bad_value") from None

    def _called_back(self, number: int, args: Any, kwargs: Any) -> list[Any]:
        try:
            result = self.functions[number](*self.read(args), **self.read(kwargs))
            return ["return", self.written(result)]
        except AnswerGone:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to the program's call
            return ["raise", type(error).__name__, str(error)[:1000]]

    def value(self, reply: list[Any]) -> Any:
        """The value of a reply, or the exception of the program.

        Raises:
            AnswerGone: For a reply that cannot be read.
        """
        if reply[0] == "raise":
            raise self.exception(reply)
        try:
            return self.read(reply[1])
        except (WireError, ValueError, TypeError, IndexError, RecursionError, MemoryError):
            raise AnswerGone("bad_value") from None

    def exception(self, reply: list[Any]) -> Exception:
        """An exception of the same built-in class as the program's, as far as it has one."""
        names = reply[1] if isinstance(reply[1], list) else []
        for name in names:
            kind = self.exceptions.get(name) if isinstance(name, str) else None
            kind = kind or (getattr(builtins, name, None) if isinstance(name, str) else None)
            # neither AssertionError, which is the tests' own, nor what ends a process
            if isinstance(kind, type) and issubclass(kind, Exception) and kind is not AssertionError:
                try:
                    return kind(str(reply[2]))
                except TypeError:  # UnicodeDecodeError and its like want more
                    continue
        return RuntimeError(str(reply[2])[:1000])

    def call(self, target: Remote, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an object of the program; lists and mappings that it changes are changed here too."""
        reply = self.request("call", self.written(target), self.written(args), self.written(kwargs))
        result = self.value(reply)
        for index, after in reply[2]:
            _update(args[index], self.read(after))
        return result

    def operate(self, name: str, *args: Any) -> Any:
        """One of the operations that objects of the program take part in."""
        return self.value(self.request("op", name, self.written(args)))

    def written(self, value: Any) -> Any:
        """A value of the tests as it is sent."""
        return encoded(value, self._handle)

    def _handle(self, value: Any) -> list[Any]:
        if type(value) is Remote:
            return ["h", value._number]
        name = getattr(value, "__name__", "") if isinstance(value, (type, _BUILTIN)) else ""
        if name and getattr(builtins, name, None) is value:
            return ["n", name]
        if callable(value):
            self.functions.append(value)
            return ["k", len(self.functions) - 1]
        if hasattr(value, "__iter__"):
            return ["g", *(self.written(item) for _, item in zip(range(MAX_ITEMS), value, strict=False))]
        raise WireError(f"a test passes a {type(value).__name__}")

    def read(self, value: Any) -> Any:
        """A value of the program."""
        return decoded(value, self._found)

    def _found(self, tagged: list[Any]) -> Any:
        if tagged[0] != "h" or not isinstance(tagged[1], int):
            raise WireError("unknown tag")
        return Remote(self, tagged[1], str(tagged[2]))

    def names(self, described: dict[str, Any]) -> dict[str, Any]:
        """What the program's names stand for in the tests.

        Modules of the standard library and their functions are the real ones, whatever the program has made of its own.
        """
        found: dict[str, Any] = {}
        for name, value in described.items():
            if name in SAFE_MODULES:
                found[name] = importlib.import_module(name)
            elif isinstance(value, list) and value and value[0] in ("M", "m"):
                if value[1] in SAFE_MODULES:
                    module = importlib.import_module(value[1])
                    found[name] = module if value[0] == "M" else getattr(module, name)
            elif isinstance(value, list) and value and value[0] == "h" and value[2] == "exception":
                found[name] = self._exception_class(name, value[3])
            else:
                found[name] = self.read(value)
        return found

    def _exception_class(self, name: str, bases: list[str]) -> type[Exception]:
        kinds = [getattr(builtins, base, None) for base in bases if isinstance(base, str)]
        base = next((one for one in kinds if isinstance(one, type) and issubclass(one, Exception)), Exception)
        self.exceptions[name] = type(name, (base,), {})
        return self.exceptions[name]


def _update(old: Any, new: Any) -> None:
    if type(old) is not type(new):
        return
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)
    elif isinstance(old, deque):
        old.clear()
        old.extend(new)
