"""The process of the program under test: it runs the program and answers calls from the process that runs the tests.

Nothing here is trusted. The program can change all of it, and gains nothing: no expected value, no test and no verdict
is ever in this process.
"""

from __future__ import annotations

import builtins
import io
import operator
import os
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any

from reward_funcs._sandbox_wire import Channel, decoded, encoded

# Modules whose names in a program mean the module itself, in the process of the tests too.
SAFE_MODULES = frozenset(
    "math cmath collections itertools functools heapq bisect string copy typing datetime decimal fractions operator "
    "statistics random re".split()
)
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
    "eq": operator.eq,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "isinstance": lambda kind, item: isinstance(item, kind),
}
_MUTABLE = (list, dict, set, bytearray, deque)


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
            self.channel.send(self.answer(self.channel.receive()))

    def answer(self, message: list[Any]) -> list[Any]:
        """The reply to one request; an exception of the program is one too."""
        try:
            return getattr(self, f"do_{message[0]}")(*message[1:])
        except BaseException as error:  # noqa: BLE001 - whatever the program raises is the answer
            return self.raised(error)

    def raised(self, error: BaseException) -> list[Any]:
        """An exception as a reply: the names of its classes, and its text."""
        names = [kind.__name__ for kind in type(error).__mro__]
        try:
            text = str(error)[:1000]
        except BaseException:  # noqa: BLE001 - the program's own __str__
            text = ""
        return ["raise", names, text]

    def do_compile(self, code: str) -> list[Any]:
        """Whether the code compiles."""
        compile(code, "<answer>", "exec", dont_inherit=True)
        return ["ok", None, []]

    def do_load(self, code: str) -> list[Any]:
        """Run the program; the reply says what each of its names stands for."""
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
        elif callable(value):
            kind = "function"
        return ["h", self.number(value), kind, bases]

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
        return self.callback(tagged[1])

    def callback(self, number: int) -> Callable[..., Any]:
        """A function that calls one of the test process."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.channel.send(["callback", number, self.written(args), self.written(kwargs)])
            while True:
                message = self.channel.receive()
                if message[0] == "return":
                    return self.read(message[1])
                if message[0] == "raise":
                    kind = getattr(builtins, message[1], RuntimeError)
                    raise kind(message[2])
                self.channel.send(self.answer(message))  # the callback itself calls the program

        return call

    def do_call(self, target: Any, args: Any, kwargs: Any) -> list[Any]:
        """Call an object; the reply also holds the arguments that the call has changed."""
        function, values, named = self.read(target), self.read(args), self.read(kwargs)
        result = function(*values, **named)
        changed = []
        for index, (value, before) in enumerate(zip(values, args[1:], strict=True)):
            if type(value) in _MUTABLE:
                after = self.written(value)
                if after != before:
                    changed.append([index, after])
        return ["ok", self.written(result), changed]

    def do_method(self, entry: str, args: Any) -> list[Any]:
        """Call a function by name, or the method of that name of the class `Solution`."""
        space = vars(sys.modules["solution"])
        function = space.get(entry)
        if function is None and isinstance(space.get("Solution"), type):
            function = getattr(space["Solution"](), entry)
        if function is None:
            raise NameError(f"name {entry!r} is not defined")
        result = function(*self.read(args))
        return ["ok", encoded(result), []]

    def do_op(self, name: str, args: Any) -> list[Any]:
        """One of the operations that objects of the program take part in."""
        return ["ok", self.written(OPERATIONS[name](*self.read(args))), []]


def run_script(code: str) -> int:
    """Run a program as `python file` would, with the standard streams of this process.

    Returns:
        `int`: the status that Python would end with.
    """
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8", errors="replace")
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8", errors="replace")
    sys.argv = ["answer.py"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    status = 0
    try:
        exec(compile(code, "<answer>", "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        status = 0 if error.code is None else error.code & 255 if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever the program raises
        status = 1
    try:
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - the program may have closed or replaced it
        pass
    return status


def close_all_but(kept: list[int]) -> None:
    """Close every descriptor above 2 that is not kept."""
    first = 3
    for number in [*sorted(one for one in kept if one >= 3), 1 << 16]:
        os.closerange(first, number)
        first = number + 1
