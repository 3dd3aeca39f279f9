"""The process of the program under test: it runs the program and answers calls from the process that runs the tests.

Nothing here is trusted. The program can change all of it, and gains nothing: no expected value, no test and no verdict
is ever in this process.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import operator
import os
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any

from reward_funcs._sandbox_prelude import add_prelude
from reward_funcs._sandbox_wire import MAX_JOB, Channel, decoded, encoded, packed

# Modules whose names in a program mean the module itself, in the process of the tests too.
SAFE_MODULES = frozenset(
    "math cmath collections itertools functools heapq bisect string copy typing datetime decimal fractions operator "
    "statistics random re".split()
)
BINARY = (
    "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift lt le gt ge".split()
)  # names of `operator`
UNARY = ("neg", "pos", "abs", "invert", "index")


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    operation: Callable[[Any, Any], Any] = getattr(operator, name)
    return lambda item, other: operation(other, item)


def _left(item: Any, name: str | None, text: str) -> Any:
    """Leave a context, with the exception of that name where there is one."""
    if name is None:
        return type(item).__exit__(item, None, None, None)
    kind = getattr(builtins, name, RuntimeError)
    return type(item).__exit__(item, kind, kind(text), None)


def _awaited(item: Any) -> Any:
    import asyncio

    return asyncio.run(item)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "delete": delattr,
    "iter": iter,
    "next": next,
    "len": len,
    "contains": operator.contains,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "str": str,
    "repr": repr,
    "bool": bool,
    "hash": hash,
    "int": int,
    "float": float,
    "round": round,
    "format": format,
    "reversed": reversed,
    "type": type,
    "eq": operator.eq,
    "isinstance": lambda kind, item: isinstance(item, kind),
    "issubclass": lambda kind, item: issubclass(item, kind),
    "enter": lambda item: type(item).__enter__(item),
    "exit": _left,
    "await": _awaited,
    **{name: getattr(operator, name) for name in (*BINARY, *UNARY)},
    **{f"r{name}": _reflected(name) for name in BINARY},
}
_MUTABLE = (list, dict, set, bytearray, deque)
# What a value of a subclass holds, read by the methods of the type itself.
_PLAIN: list[tuple[Any, Callable[[Any], Any]]] = [
    (int, int.__pos__),
    (float, float.__pos__),
    (str, str.__str__),
    (bytes, lambda value: bytes(memoryview(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (list, lambda value: list(list.__iter__(value))),
    (dict, lambda value: dict(dict.items(value))),
    ((set, type({}.keys())), set),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
]


class Server:
    """Runs a program and what is asked of it.

    Args:
        channel (`Channel`): to the process that runs the tests.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}

    def serve(self) -> None:
        """Answer until the other side closes."""
        while True:
            self.channel.send(self.answer(self.channel.receive(most=MAX_JOB)))

    def answer(self, message: list[Any]) -> list[Any]:
        """The reply to one request; an exception of the program is one too."""
        try:
            return getattr(self, f"do_{message[0]}")(*message[1:])
        except BaseException as error:  # noqa: BLE001 - whatever the program raises is the answer
            return self.raised(error)

    def raised(self, error: BaseException) -> list[Any]:
        """An exception as a reply: the names of its classes, its text, its arguments and its attributes."""
        names = [kind.__name__ for kind in type(error).__mro__]
        text, args, attributes = "", None, {}
        try:
            text = str(error)[:1000]
            held = {"code": error.code} if isinstance(error, SystemExit) else dict(vars(error))
            args = encoded(error.args)
            attributes = {name: self.written(value) for name, value in held.items() if not name.startswith("_")}
            packed([args, attributes], 1 << 16)
        except BaseException:  # noqa: BLE001 - the program's own __str__, or what cannot be sent
            args, attributes = None, {}
        return ["raise", names, text, args, attributes]

    def do_compile(self, code: str) -> list[Any]:
        """Whether the code compiles."""
        compile(code, "<answer>", "exec", dont_inherit=True)
        return ["ok", None, []]

    def do_load(self, code: str, has_prelude: bool = False) -> list[Any]:
        """Run the program, with the names of LeetCode where asked; the reply says what each of its own stands for."""
        _add_site_builtins()
        if has_prelude:
            add_prelude()
        sys.argv = ["answer.py"]
        module = types.ModuleType("solution")
        sys.modules["solution"] = module
        space = module.__dict__
        exec(compile(code, "<answer>", "exec", dont_inherit=True), space)
        names = [name for name in space if isinstance(name, str) and not name.startswith("__")]
        return ["ok", {name: self.described(name, space[name]) for name in names}, []]

    def described(self, name: str, value: Any) -> Any:
        """What stands for a name of the program in the process of the tests."""
        if isinstance(value, types.ModuleType):
            return ["M", value.__name__] if value.__name__ in SAFE_MODULES else ["h", self.number(value), "object", []]
        home = getattr(value, "__module__", None)
        if home in SAFE_MODULES and getattr(sys.modules.get(home), name, None) is value:
            return ["m", home, name]
        return self.written(value)

    def written(self, value: Any) -> Any:
        """A value as it is sent: plain data as they are, anything else as a handle."""
        return encoded(value, self.handle)

    def handle(self, value: Any) -> list[Any]:
        """The handle of an object that stays here."""
        kind, bases = "object", []
        if isinstance(value, type):
            kind = "class"
            if issubclass(value, BaseException):
                kind, bases = "exception", [base.__name__ for base in value.__mro__]
        elif isinstance(value, types.CoroutineType):
            kind = "coroutine"
        elif callable(value):
            kind = "function"
        return ["h", self.number(value), kind, bases, *self.plain(value)]

    def plain(self, value: Any) -> list[Any]:
        """What an instance of a subclass of a plain type holds: an IntEnum is its number, a named tuple its items."""
        for kind, read in _PLAIN:
            if isinstance(value, kind):
                try:
                    return [self.written(read(value))]
                except TypeError:  # it only says that it is of the type
                    return []
        return []

    def number(self, value: Any) -> int:
        """The number of an object; one object has one number."""
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)  # kept, or its id would be used again
        return self.numbers[id(value)]

    def read(self, value: Any) -> Any:
        """A value that was sent."""
        return decoded(value, self.found)

    def found(self, tagged: list[Any]) -> Any:
        """What a tag of the test process stands for here."""
        if tagged[0] == "h":
            return self.objects[tagged[1]]
        if tagged[0] == "n":
            return getattr(builtins, tagged[1])
        if tagged[0] == "g":
            return iter([self.read(item) for item in tagged[1:]])
        return self.callback(*tagged[1:])

    def callback(self, number: int, name: str = "function", doc: str | None = None) -> Callable[..., Any]:
        """A function that calls one of the test process, of that name and documentation."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.channel.send(["callback", number, self.written(args), self.written(kwargs)])
            while True:
                message = self.channel.receive(most=MAX_JOB)
                if message[0] == "return":
                    return self.read(message[1])
                if message[0] == "raise":
                    kind = getattr(builtins, message[1], RuntimeError)
                    raise kind(message[2])
                self.channel.send(self.answer(message))  # the callback itself calls the program

        call.__name__ = call.__qualname__ = name
        call.__doc__ = doc
        return call

    def do_call(self, target: Any, args: Any, kwargs: Any) -> list[Any]:
        """Call an object; the reply also holds the arguments that the call has changed."""
        function, values, named = self.read(target), self.read(args), self.read(kwargs)
        result = function(*values, **named)
        given = [*enumerate(values), *named.items()]
        before = [*args[1:], *(item for _, item in kwargs[1:])]
        changed = []
        for (place, value), sent in zip(given, before, strict=True):
            if type(value) in _MUTABLE:
                after = self.written(value)
                if after != sent:
                    changed.append([place, after])
        same = [place for place, value in given if value is result and type(value) in _MUTABLE]
        return ["ok", ["same", same[0]] if same else self.written(result), changed]

    def do_method(self, entry: str, args: Any) -> list[Any]:
        """Call a function by name, or the method of that name of the class `Solution`."""
        space = vars(sys.modules["solution"])
        function = space.get(entry)
        if function is None and isinstance(space.get("Solution"), type):
            function = getattr(space["Solution"](), entry)
        if function is None:
            raise NameError(f"name {entry!r} is not defined")
        result = function(*self.read(args))
        return ["ok", encoded(result, _bare), []]

    def do_op(self, name: str, args: Any) -> list[Any]:
        """One of the operations that objects of the program take part in."""
        return ["ok", self.written(OPERATIONS[name](*self.read(args))), []]


def _bare(value: Any) -> Any:
    """What an instance of a subclass of a plain type holds, as it is sent; anything else is no result."""
    for kind, read in _PLAIN:
        if isinstance(value, kind):
            return encoded(read(value), _bare)
    raise TypeError(f"a result of the type {type(value).__name__}")


def _add_site_builtins() -> None:
    """`exit` and `quit`, which an interpreter that was started without `site` lacks."""
    import _sitebuiltins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))


def _stream(number: int, mode: str) -> io.TextIOWrapper:
    """A standard stream, with the attributes that Python gives it."""
    stream: Any = io.TextIOWrapper(open(number, f"{mode}b", closefd=False), encoding="utf-8", errors="replace")
    stream.mode = mode
    return stream


def _add_stream_files() -> None:
    """Let `open` take /dev/stdin and /dev/stdout, which are links into a /proc that is not shown."""
    real: Any = builtins.open
    numbers = {"/dev/stdin": 0, "/dev/fd/0": 0, "/dev/stdout": 1, "/dev/fd/1": 1}

    def opened(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str) and file in numbers:
            file = os.dup(numbers[file])
        return real(file, *args, **kwargs)

    builtins.open = io.open = opened


def run_script(code: str) -> int:
    """Run a program as `python file` would, with the standard streams of this process.

    Returns:
        `int`: the status that Python would end with.
    """
    sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
    _add_site_builtins()
    _add_stream_files()
    sys.argv = ["answer.py"]
    module = types.ModuleType("__main__")
    module.__file__ = os.path.join(os.getcwd(), "answer.py")
    sys.modules["__main__"] = module
    status = _ran(lambda: exec(compile(code, "<answer>", "exec", dont_inherit=True), module.__dict__))
    _finish(module)
    return status


def _ran(action: Callable[[], Any]) -> int:
    """Run something of the program; the status that Python would end with after it."""
    try:
        action()
    except SystemExit as error:
        return 0 if error.code is None else error.code & 255 if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever the program raises
        return 1
    return 0


def _finish(module: types.ModuleType) -> None:
    """What an interpreter does at its end: wait for threads, call what asked for it, write what is still held."""
    threading = sys.modules.get("threading")
    if threading is not None:
        _ran(threading._shutdown)
    _ran(atexit._run_exitfuncs)
    for stream in (sys.stdout, sys.__stdout__):
        _ran(lambda stream=stream: stream.flush())  # type: ignore[misc]
    module.__dict__.clear()  # files that nobody has closed are written when they go
    _ran(gc.collect)


def close_all_but(kept: list[int]) -> None:
    """Close every descriptor above 2 that is not kept."""
    first = 3
    for number in [*sorted(one for one in kept if one >= 3), 1 << 16]:
        os.closerange(first, number)
        first = number + 1
