"""Objects of the program under test as the process of the tests sees them: each use is a request to the other process.

What comes back is plain data of the standard library, or a [`Remote`], which equals no plain value whatever it says of
itself: a program that patches `__eq__` only changes how its own objects compare with each other.
"""

from __future__ import annotations

import builtins
import importlib
import keyword
import operator
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from reward_funcs._sandbox_answer import BINARY, SAFE_MODULES, UNARY
from reward_funcs._sandbox_wire import MAX_JOB, Channel, WireError, decoded, encoded

MAX_ITEMS = 1_000_000
_BUILTIN = types.BuiltinFunctionType
_PLAIN = frozenset({int, float, str, bytes, tuple, list, dict, set, frozenset})
_COMPARISONS = ("lt", "le", "gt", "ge", "contains")
# what an object may still be asked that has seen a value of the tests, see `Remote._own`
_OF_SEEN = frozenset({*BINARY, *(f"r{name}" for name in BINARY), *UNARY, "eq", "hash", "type"})
_UNREADABLE = (WireError, TypeError, ValueError, IndexError, KeyError, AttributeError, RecursionError, MemoryError)


class AnswerGone(BaseException):  # a test that catches every Exception must not swallow it
    """The program's process has ended or is not answering; `reason` says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unsupported(BaseException):
    """The test does something with the program that cannot be carried over between two processes."""


class Remote:
    """An object of the program under test.

    Args:
        client (`Client`): the connection to the program.
        number (`int`): the object's number there.
        makes (`str`): of a class that the tests treat as one: `"yes"`, or `"maybe"` where only its name says so.
        asks (`str`): the same for an instance that the tests have made of such a class: it answers for its own
            operators. Anything else that a function returns does not, or it could answer to every check. With `"maybe"`
            it answers where it sees no value of the tests, or gives an object of its own; that one is `"seen"`, and
            gives nothing else any more.
        plain (`tuple[Any, ...]`): what an instance of a subclass of a plain type holds; empty for the others.
    """

    __slots__ = ("_asks", "_client", "_makes", "_number", "_plain")

    def __init__(
        self, client: Client, number: int, makes: str = "", asks: str = "", plain: tuple[Any, ...] = ()
    ) -> None:
        for name, value in (("client", client), ("number", number), ("makes", makes), ("asks", asks), ("plain", plain)):
            object.__setattr__(self, f"_{name}", value)

    def _own(self, name: str, *others: Any) -> Any:
        """An operation of the object's own, where it has a say in it."""
        if not self._asks:
            raise TypeError(f"the program's object has no say in {name}")
        has_seen = self._asks == "seen" or (self._asks == "maybe" and bool(others))
        if has_seen and name in _COMPARISONS:
            raise Unsupported("a comparison by an object of the program")
        result = self._client.operate(name, self, *others)
        if type(result) is Remote and not (has_seen and result._plain):
            return Remote(self._client, result._number, asks="seen" if has_seen else self._asks, plain=result._plain)
        if has_seen:  # a program could make up what the test wants to see
            raise Unsupported("an operator of an object of the program")
        return result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._client.call(self, args, kwargs)
        if self._makes and type(result) is Remote and not result._plain:
            return Remote(self._client, result._number, asks=self._makes)
        return result

    def __getattr__(self, name: str) -> Any:
        return self._client.operate("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._client.operate("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._client.operate("delete", self, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._plain[0]) if self._plain else self._client.operate("type", self)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise Unsupported("a class of the tests derives from one of the program")

    def __iter__(self) -> Iterator[Any]:
        if self._plain and not isinstance(self._plain[0], set):  # the keys of a mapping have their order
            return iter(self._plain[0])
        items = self._client.operate("iter", self)
        if not isinstance(items, Remote):
            raise TypeError("not an iterator")
        return items

    def __next__(self) -> Any:
        return self._client.operate("next", self)

    def __len__(self) -> Any:
        if self._plain:
            return len(self._plain[0])
        if self._asks:
            return self._own("len")
        items = iter(self)
        if items is self:  # `list` asks for a length too, and would find nothing left behind it
            raise TypeError("an iterator has no length")
        return sum(1 for _ in items)

    def __contains__(self, item: object) -> bool:
        if self._asks and not self._plain:
            return self._own("contains", item) is True
        # the program is not asked, or it could say yes to everything
        return any(one is item or one == item for one in (self._plain[0] if self._plain else self))

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

    def __format__(self, spec: str) -> Any:
        return self._client.operate("format", self, spec)

    def __bool__(self) -> bool:
        return self._client.operate("bool", self) is True

    def __hash__(self) -> int:
        return hash(self._plain[0] if self._plain else self._client.operate("hash", self))

    def __eq__(self, other: object) -> bool:
        if type(other) is not Remote:
            return bool(self._plain) and bool(self._plain[0] == other)
        return self._number == other._number or self._client.operate("eq", self, other) is True

    def __instancecheck__(self, item: object) -> bool:
        return type(item) is Remote and self._client.operate("isinstance", self, item) is True

    def __subclasscheck__(self, item: object) -> bool:
        return type(item) is Remote and self._client.operate("issubclass", self, item) is True

    def __int__(self) -> Any:
        return int(self._plain[0]) if self._plain else self._own("int")

    def __float__(self) -> Any:
        return float(self._plain[0]) if self._plain else self._own("float")

    def __round__(self, *digits: Any) -> Any:
        return round(self._plain[0], *digits) if self._plain else self._own("round", *digits)

    def __reversed__(self) -> Any:
        return reversed(self._plain[0]) if self._plain else self._client.operate("reversed", self)

    def __enter__(self) -> Any:
        return self._client.operate("enter", self)

    def __exit__(self, kind: Any, error: BaseException | None, trace: object) -> None:
        name = None if kind is None else kind.__name__
        is_swallowed = self._client.operate("exit", self, name, str(error)) is True
        is_found_wrong = isinstance(error, AssertionError) and not is_of_program(error)
        if is_swallowed and error is not None and self._asks == "yes" and not is_found_wrong:
            raise Unsupported("a context of the program that ends an exception")
        # no exception ends here, or what a test has found wrong would be lost


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    operation = getattr(operator, name)

    def forward(self: Remote, other: Any) -> Any:
        if type(other) is Remote and "seen" not in (self._asks, other._asks):
            return self._client.operate(name, self, other)
        return operation(self._plain[0], other) if self._plain else self._own(name, other)

    def reflected(self: Remote, other: Any) -> Any:
        return operation(other, self._plain[0]) if self._plain else self._own(f"r{name}", other)

    return forward, reflected


def _unary(name: str) -> Callable[..., Any]:
    operation = getattr(operator, name)

    def apply(self: Remote) -> Any:
        return operation(self._plain[0]) if self._plain else self._own(name)

    return apply


def _asked(name: str) -> Callable[[Remote], Any]:
    return lambda self: self._client.operate("get", self, name)


for _name in BINARY:
    _forward, _backward = _binary(_name)
    setattr(Remote, f"__{_name.strip('_')}__", _forward)
    if _name not in ("lt", "le", "gt", "ge"):
        setattr(Remote, f"__r{_name.strip('_')}__", _backward)
for _name in UNARY:
    setattr(Remote, f"__{_name}__", _unary(_name))
for _name in ("__doc__", "__module__"):  # which this class has itself, so that nobody would ask the program
    setattr(Remote, _name, property(_asked(_name)))


def is_of_program(error: BaseException | None) -> bool:
    """Whether an exception is one that the program has raised."""
    return bool(getattr(error, "_is_of_program", False))


async def _coroutine(remote: Remote) -> Any:
    """A coroutine of the program, as one that the tests can wait for."""
    return remote._client.operate("await", remote)


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
        self.remotes: dict[int, Remote] = {}

    def request(self, *message: Any) -> list[Any]:
        """Send a request and return the reply; the program's calls of the tests' functions are answered meanwhile.

        Raises:
            AnswerGone: When the program's process has ended, is late, or sends what cannot be read.
        """
        try:
            self.channel.send(list(message), MAX_JOB)
            while True:
                reply = self.channel.receive(self.deadline)
                if not isinstance(reply, list) or not reply:
                    raise WireError("no reply")
                if reply[0] != "callback":
                    return reply
                self.channel.send(self._called_back(*reply[1:]), MAX_JOB)
        except TimeoutError:
            raise AnswerGone("timeout") from None
        except (EOFError, OSError):
            raise AnswerGone("crash") from None
        except _UNREADABLE:
            raise AnswerGone("bad_value") from None

    def _called_back(self, number: int, args: Any, kwargs: Any) -> list[Any]:
        if type(number) is not int or number < 0:
            raise WireError("no function of the tests")
        function, values, named = self.functions[number], self.read(args), self.read(kwargs)
        if type(values) is not tuple or type(named) is not dict:
            raise WireError("no arguments")
        try:
            return ["return", self.written(function(*values, **named))]
        except Exception as error:  # noqa: BLE001 - it belongs to the program's call
            return ["raise", type(error).__name__, str(error)[:1000]]

    def value(self, reply: list[Any], *, is_next: bool = False) -> Any:
        """The value of a reply, or the exception of the program.

        Raises:
            AnswerGone: For a reply that cannot be read.
        """
        try:
            if reply[0] != "raise":
                return self.read(reply[1])
            error = self.exception(reply, is_next=is_next)
        except _UNREADABLE:
            raise AnswerGone("bad_value") from None
        raise error

    def exception(self, reply: list[Any], *, is_next: bool = False) -> BaseException:
        """An exception of the same built-in class as the program's, as far as it has one."""
        names = reply[1] if isinstance(reply[1], list) else []
        text, args, attributes = str(reply[2])[:1000], *(*reply[3:5], None, {})[:2]
        error: BaseException = RuntimeError(text)
        for name in names:
            kind: Any = isinstance(name, str) and (self.exceptions.get(name) or getattr(builtins, name, None))
            if not isinstance(kind, type):
                continue
            if issubclass(kind, (StopIteration, StopAsyncIteration)) and not is_next:
                break  # it would end a loop of the tests as if there were nothing more to check
            if issubclass(kind, (Exception, SystemExit)):
                try:
                    error = kind(*(() if args is None else self.read(args)))
                    break
                except TypeError:  # UnicodeDecodeError and its like want more
                    continue
        for name in filter(_is_public, attributes):
            setattr(error, name, self.read(attributes[name]))
        error._text, error._is_of_program = text, True  # type: ignore[attr-defined]
        return error

    def call(self, target: Remote, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an object of the program; lists and mappings that it changes are changed here too."""
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        reply = self.request("call", self.written(target), self.written(args), self.written(kwargs))
        is_same = len(reply) > 1 and isinstance(reply[1], list) and reply[1][:1] == ["same"]
        result = None if is_same else self.value(reply)
        try:
            for place, after in reply[2]:
                _update(given[place], self.read(after))
            return given[reply[1][1]] if is_same else result
        except _UNREADABLE:
            raise AnswerGone("bad_value") from None

    def operate(self, name: str, *args: Any) -> Any:
        """One of the operations that objects of the program take part in."""
        if type(args[0]) is Remote and args[0]._asks == "seen" and name not in _OF_SEEN:
            raise Unsupported("a use of what an operator of the program gives")
        return self.value(self.request("op", name, self.written(args)), is_next=name == "next")

    def written(self, value: Any) -> Any:
        """A value of the tests as it is sent.

        Raises:
            Unsupported: For an object of the tests that the program cannot be given.
        """
        return encoded(value, self._handle)

    def _handle(self, value: Any) -> list[Any]:
        if type(value) is types.CoroutineType and value.cr_code is _coroutine.__code__ and value.cr_frame:
            value = value.cr_frame.f_locals["remote"]
        if type(value) is Remote:
            return ["h", value._number]
        name = getattr(value, "__name__", "") if isinstance(value, (type, _BUILTIN)) else ""
        if name and getattr(builtins, name, None) is value:
            return ["n", name]
        if callable(value):
            self.functions.append(value)
            # a decorator of the program may copy these two
            about = [value.__name__, value.__doc__] if isinstance(value, types.FunctionType) else []
            return ["k", len(self.functions) - 1, *about]
        if hasattr(value, "__iter__"):
            return ["g", *(self.written(item) for _, item in zip(range(MAX_ITEMS), value, strict=False))]
        raise Unsupported(f"a test passes a {type(value).__name__}")

    def read(self, value: Any) -> Any:
        """A value of the program."""
        return decoded(value, self._found)

    def _found(self, tagged: list[Any]) -> Any:
        if tagged[0] != "h" or type(tagged[1]) is not int:
            raise WireError("unknown tag")
        plain = (self.read(tagged[4]),) if len(tagged) > 4 else ()
        if plain and type(plain[0]) not in _PLAIN:
            raise WireError("no value of a plain type")
        if tagged[2] == "coroutine":
            return _coroutine(Remote(self, tagged[1]))
        found = self.remotes.setdefault(tagged[1], Remote(self, tagged[1]))  # one object is one object here too
        object.__setattr__(found, "_plain", plain)
        return found

    def names(self, described: dict[str, Any], classes: set[str]) -> dict[str, Any]:
        """What the program's names stand for in the tests.

        Modules of the standard library and their functions are the real ones, whatever the program has made of its own.
        The program's process may say anything: names with two underscores in front would set what Python itself looks
        up in a namespace, `__builtins__` among them, and are left out, with all that no statement could have bound.

        Args:
            described (`dict[str, Any]`): what the program's process says of its names.
            classes (`set[str]`): names that the tests treat as classes.

        Raises:
            AnswerGone: For a description that cannot be read.
        """
        try:
            found = [name for name in described if not name.startswith("__") and _is_name(name)]
            return {name: self._named(name, described[name], described, classes) for name in found}
        except _UNREADABLE:
            raise AnswerGone("bad_value") from None

    def _named(self, name: str, value: Any, described: dict[str, Any], classes: set[str]) -> Any:
        tag = value[0] if isinstance(value, list) and value else None
        if tag in ("M", "m"):
            if value[1] not in SAFE_MODULES:
                raise WireError("no module of the standard library")
            module = importlib.import_module(value[1])
            return module if tag == "M" else _member(module, name, value[2])
        if tag == "h" and value[2] == "exception":
            return self._exception_class(name, value[3], described)
        found = self.read(value)
        if tag == "h" and value[2] == "class" and name[0].isupper():
            self.remotes[value[1]] = Remote(self, value[1], makes="yes" if name in classes else "maybe")
            return self.remotes[value[1]]
        return found

    def _exception_class(self, name: str, bases: list[str], described: dict[str, Any]) -> type[Exception]:
        if not isinstance(bases, list):
            raise WireError("no classes")
        if name in self.exceptions:
            return self.exceptions[name]
        parent: Any = Exception
        for base in bases[1:]:
            stated = described.get(base)
            kind = getattr(builtins, base, None)
            if isinstance(stated, list) and stated[:1] == ["h"] and stated[2] == "exception" and base != name:
                parent = self._exception_class(base, stated[3], {**described, name: None})
                break
            if isinstance(kind, type) and issubclass(kind, Exception):
                parent = kind
                break
        made = type(name, (parent,), {"__str__": lambda error: getattr(error, "_text", Exception.__str__(error))})
        self.exceptions[name] = made
        return made


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _is_public(name: Any) -> bool:
    return isinstance(name, str) and not name.startswith("_")


def _member(module: types.ModuleType, name: str, member: Any) -> Any:
    """What a module of the standard library has defined under the name that the program has imported it by."""
    found = getattr(module, name, None) if member == name and _is_public(name) else None
    # a module has names of others too, such as `typing.sys`
    if found is None or isinstance(found, types.ModuleType) or getattr(found, "__module__", None) != module.__name__:
        raise WireError("no member of the standard library")
    return found


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
