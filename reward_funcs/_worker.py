"""The process that compares mathematical answers with math-verify; [`reward_funcs.pool`] starts it, feeds it, kills it.

It is run as a file and imports nothing of this package, so whatever the parent's `__main__` is, it is not run again.
It talks in frames (four bytes of length, then JSON in ASCII) on the pipes it got as standard input and output, and
lives until its input ends. No sympy object and no text made from one leaves it.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import select
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

MAX_FRAME = 1 << 28
# an unrelated process may have inherited the other end of our input, so that the end of the parent is no end of file
PARENT_CHECK_SECONDS = 5.0
# relative difference up to which numbers without a decimal point can be the same
EXACT = 1e-15
# what is read before a worker is ready, and how long it must have nothing to do before it reads on
WARM_FIRST, IDLE_SECONDS, IDLE_WARM_UP_TIMEOUT = 2, 0.05, 1.0

_DECIMAL = re.compile(r"\d\.\d|(?<!\.)\.\d")
# 1.6e-19 is no 1.6e - 19; a bare `2e-3` may well be one, so a decimal point, a 1 or a long exponent must tell
_SCIENTIFIC = re.compile(
    r"(?<![\w.\\}])(?=\d+\.|1[eE]|\d+[eE][+-]?\d\d)(\d{1,40}(?:\.\d{0,40})?)[eE]([+-]?\d{1,9})(?![\w.])"
)
_THOUSANDS = re.compile(r"(?<=\d)\\[,!;: ](?=\d{3}(?!\d))")
_BASE = re.compile(r"\s*[0-9A-Fa-f.]+\s*_\s*\{?\s*(\d+)\s*\}?\s*")
_LITERAL = re.compile(r"\s*(Integer|Float|Symbol)\s*\(\s*'?(-?[\w.]+(?:[eE][+-]?\d+)?)'?\s*\)\s*")
_SPACED = re.compile(r"\s|\\left|\\bigl?|\\Bigl?")
_TRAILING_WORD = re.compile(r"(?:\{|[\d\s}])\s*([A-Za-z]{1,15})\s*\}?\s*$")
# only units that are mistaken for one another; what is in no table is never a reason to differ
_UNITS = {
    alias: names.split()[0]
    for names in (
        "mm millimeter,cm centimeter,m meter,km kilometer,in inch inche,ft foot feet,yd yard,mi mile,mg milligram,"
        "g gram,kg kilogram,s sec second,min minute,h hr hour,cent,dollar"
    ).split(",")
    for alias in names.split()
}
# golds and answers with one of everything in them
_WARM_UP = (
    (r"\frac{1}{2}", "0.5"),
    (r"\sqrt{2}+3\pi", r"3\pi+\sqrt2"),
    (r"x^2+\sin(x)^2", r"1+x^{2}-\cos^2 x"),
    (r"\{1,2\}", "(1,2,3)"),
    (r"(-\infty,3]\cup[5,7)", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ("x=5", "1 < x < 2"),
    (r"1.6\times 10^{-19}", r"50\%"),
    ("f(x)=|x|+a_n", r"\text{abc}"),
    (r"e^{-50}+\ln 2", r"\binom{5}{2}+5!"),
    (r"\sum_{k=1}^{5} k", r"\int_0^1 x dx"),
    (r"((1+2)\cdot(3-4))+2i", r"90^\circ"),
)


class SoftDeadline(BaseException):
    """Raised by the alarm; no `Exception`, because sympy catches those."""


def packed(message: dict[str, Any]) -> bytes:
    """The frame of a message: four bytes of length, big-endian, and JSON in ASCII."""
    body = json.dumps(message, ensure_ascii=True).encode("ascii")
    return struct.pack(">I", len(body)) + body


def unpacked(buffer: bytearray) -> dict[str, Any] | None:
    """The first message of a buffer, taken out of it, or `None` while it is not complete."""
    if len(buffer) < 4:
        return None
    (length,) = struct.unpack_from(">I", buffer)
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes; at most {MAX_FRAME} are allowed")
    if len(buffer) < 4 + length:
        return None
    message: dict[str, Any] = json.loads(buffer[4 : 4 + length])
    del buffer[: 4 + length]
    return message


class Channel:
    """The two pipes to the parent, moved away from where libraries print and read."""

    def __init__(self) -> None:
        self.source, self.sink = os.dup(0), os.dup(1)
        self._buffer = bytearray()
        self._parent = os.getppid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)

    def silence(self) -> None:
        """Let standard error go nowhere, once the parent no longer reads it."""
        os.dup2(1, 2)

    def receive(self) -> dict[str, Any]:
        """The parent's next message; ends the process when the parent is gone."""
        while (message := unpacked(self._buffer)) is None:
            ready, _, _ = select.select([self.source], [], [], PARENT_CHECK_SECONDS)
            if not ready:
                if os.getppid() != self._parent:
                    os._exit(0)
                continue
            data = os.read(self.source, 1 << 16)
            if not data:
                os._exit(0)
            self._buffer += data
        return message

    def has_input(self, seconds: float) -> bool:
        """Whether something arrives within that time, or has."""
        return bool(self._buffer) or bool(select.select([self.source], [], [], seconds)[0])

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; ends the process when the parent is gone."""
        data = memoryview(packed(message))
        try:
            while data:
                data = data[os.write(self.sink, data) :]
        except OSError:
            os._exit(0)


def _limit(memory_limit_mb: int) -> bool:
    """Whether the memory limit holds; core files are switched off on the way."""
    try:
        import resource
    except ImportError:
        return False
    size = memory_limit_mb << 20
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    except (OSError, ValueError):
        return False
    return sys.platform.startswith("linux")  # macOS takes the limit and does not keep it


def _mapped_bytes() -> int:
    """Address space in use, what RLIMIT_AS counts; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


class Clock:
    """The worker's own deadlines: a soft one that raises in the main thread, a hard one that ends the process.

    The parent kills at the deadline in any case. The hard one is for the worker whose parent was killed while a long
    C call, which no Python signal handler interrupts, keeps it from seeing that its input has ended.

    Args:
        timeout (`float`): the parent's deadline for one task, in seconds.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._armed = False
        self._null = open(os.devnull, "w")  # kept open: the watchdog writes its traceback there
        signal.signal(signal.SIGALRM, self._ring)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})  # a mask is inherited

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        if self._armed:
            raise SoftDeadline

    def _start(self) -> None:
        import faulthandler

        faulthandler.dump_traceback_later(self.timeout + 1.0, exit=True, file=self._null)
        self._armed = True
        # it rings again, since a bare except or a destructor may swallow the first
        signal.setitimer(signal.ITIMER_REAL, 0.8 * self.timeout, max(0.02, 0.05 * self.timeout))

    def _stop(self) -> None:
        import faulthandler

        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()

    def within(self, compute: Callable[[], tuple[bool | None, str]]) -> tuple[bool | None, str] | None:
        """What `compute()` returns, `None` when the soft deadline came first."""
        try:
            try:
                self._start()
                return compute()
            finally:
                self._stop()
        except SoftDeadline:
            self._stop()
            return None


def _attempt(compute: Callable[[], T]) -> T | None:
    """`compute()`, or `None` where the libraries gave up on the text."""
    try:
        return compute()
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 - the grammar's listener raises Exception itself, sympy on hostile input anything
        return None


def _cleaned(text: str) -> str:
    """The text in the one form of what the grammar knows in several, or misreads."""
    text = _SCIENTIFIC.sub(lambda match: rf"{match[1]}\times 10^{{{int(match[2])}}}", text.strip())
    return _THOUSANDS.sub("", text).replace(r"\varnothing", r"\emptyset")


@functools.lru_cache(maxsize=512)
def _parsed_gold(text: str, is_real: bool) -> tuple[Any, str]:
    return _parsed(text, is_real)


def _parsed(text: str, is_real: bool) -> tuple[Any, str]:
    """The expression that a LaTeX text is, `None` where it is none, and the text normalised."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex

    # the grammar itself, not `math_verify.parse`: that searches the text for parts and evaluates some as Python
    config = NormalizationConfig(units=True, malformed_operators=True, nits=True, boxed="none")
    normalised = _attempt(lambda: normalize_latex(_cleaned(text), config)) or ""

    def expression(part: str) -> Any:
        return latex2sympy(part, is_real=is_real, convert_degrees=False, normalization_config=None)

    found = _attempt(lambda: expression(normalised)) if normalised else None
    if found is None and normalised.count("=") > 1 and re.fullmatch(r"[^,;|<>~]*", normalised) and "\\text" not in text:
        found = _attempt(lambda: expression(normalised.rpartition("=")[2]))
    return found, normalised


def _number(expression: Any) -> tuple[Any, bool] | None:
    """A closed-form number and whether it is written as a percentage; `None` for anything else."""
    from sympy import Expr, Mul, Rational, UnevaluatedExpr

    if not isinstance(expression, Expr) or not expression.is_number:
        return None
    hundredth = UnevaluatedExpr(Rational(1, 100))
    if isinstance(expression, Mul) and hundredth in expression.args:
        return Mul(*(factor for factor in expression.args if factor != hundredth)), True
    return expression, False


def _parts(expression: Any, digits: int = 30, at: dict[Any, Any] | None = None) -> tuple[Any, Any] | None:
    """Real and imaginary part to so many digits, `None` where the number is infinite or cannot be evaluated."""
    value = _attempt(lambda: expression.evalf(digits, maxn=120, subs=at))
    if value is None:
        return None
    parts = value.as_real_imag()
    if not all(part.is_Number and part.is_finite for part in parts):
        return None
    # precision 1 is evalf's way to say that nothing is left but rounding
    real, imag = (part * 0 if getattr(part, "_prec", 53) == 1 else part for part in parts)
    return real, imag


def _close(a: tuple[Any, Any], b: tuple[Any, Any], tolerance: float) -> bool:
    from sympy import Float

    def square(real: Any, imag: Any) -> Any:
        return real * real + imag * imag

    allowed = Float(tolerance, 30) ** 2 * max(square(*a), square(*b))
    # a part in a million more, so that 0.333333 is within 1e-6 of a third
    return bool(square(a[0] - b[0], a[1] - b[1]) <= allowed * (1 + Float("1e-6", 30)))


def _same_number(gold: Any, answer: Any, tolerance: float | None) -> bool | None:
    """Whether two closed-form numbers agree within a relative tolerance, `None` where evaluation does not tell.

    Args:
        tolerance (`float`, *optional*): `None` for numbers without a decimal point: all digits that can be had.
    """
    from sympy import Integral, Limit, Product, Rational, Sum

    if tolerance is None and isinstance(gold, Rational) and isinstance(answer, Rational):
        return bool(gold == answer)
    gold_parts, answer_parts = _parts(gold), _parts(answer)
    if gold_parts is None or answer_parts is None:
        return None
    if not _close(gold_parts, answer_parts, EXACT if tolerance is None else tolerance):
        return False
    if tolerance is not None or any(number.has(Integral, Limit, Product, Sum) for number in (gold, answer)):
        return True  # quadrature and series are good for some 15 digits
    # e^{\pi\sqrt{163}} is within 3e-30 of an integer: let evalf look as deep as it needs to
    rest = _attempt(lambda: _parts(gold - answer, digits=5))
    return rest is None or not any(rest)


def _same_value(gold: tuple[Any, bool], answer: tuple[Any, bool], tolerance: float | None) -> bool | None:
    """As `_same_number`, where one of the two may be a percentage: 50\\% is 50 as well as 0.5."""
    if gold[1] == answer[1]:
        return _same_number(gold[0], answer[0], tolerance)
    percent, plain = (gold[0], answer[0]) if gold[1] else (answer[0], gold[0])
    return _same_number(percent, plain, tolerance) or _same_number(percent / 100, plain, tolerance)


def _elements(expression: Any, ordered: bool) -> list[Any] | None:
    from sympy import FiniteSet, Interval, MatrixBase, Tuple

    if isinstance(expression, FiniteSet) and ordered:
        return list(getattr(expression, "_unsorted_args", expression.args))
    if isinstance(expression, (Tuple, FiniteSet)):
        return list(expression.args)
    if isinstance(expression, MatrixBase) and 1 in expression.shape:
        return list(expression)
    if isinstance(expression, Interval) and expression.is_open:
        return [expression.start, expression.end]  # (1, 2) is read as an interval, whatever it was meant to be
    return None


def _all(found: Iterable[bool | None]) -> bool | None:
    results = list(found)
    return False if False in results else None if None in results else True


def _same_unordered(gold: list[Any], answer: list[Any], tolerance: float | None) -> bool | None:
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for element in gold:
        if _number(element) is None or any(_number(other) is None for other in left):
            return None  # with symbols among them math-verify matches them
        match = next((other for other in left if _same(element, other, tolerance)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same(gold: Any, answer: Any, tolerance: float | None) -> bool | None:
    """Whether two expressions made of closed-form numbers are the same; `None` where they are made of other things."""
    from sympy import FiniteSet, Interval, MatrixBase, Tuple
    from sympy.core.relational import Relational

    numbers = _number(gold), _number(answer)
    if numbers[0] is not None and numbers[1] is not None:
        return _same_value(numbers[0], numbers[1], tolerance)
    if isinstance(gold, Interval) and isinstance(answer, Interval):
        if (gold.left_open, gold.right_open) != (answer.left_open, answer.right_open):
            return False
        return _all(_same(a, b, tolerance) for a, b in zip(gold.args[:2], answer.args[:2], strict=True))
    if isinstance(gold, MatrixBase) and isinstance(answer, MatrixBase):
        if gold.shape != answer.shape:
            return None
        return _all(_same(a, b, tolerance) for a, b in zip(gold, answer, strict=True))
    if isinstance(gold, Relational) and type(gold) is type(answer) and gold.lhs.is_Symbol and gold.lhs == answer.lhs:
        return _same(gold.rhs, answer.rhs, tolerance) or None
    if not isinstance(gold, (FiniteSet, Tuple, MatrixBase)) and not isinstance(answer, (FiniteSet, Tuple, MatrixBase)):
        return None
    ordered = not isinstance(gold, FiniteSet)
    ours, theirs = _elements(gold, ordered), _elements(answer, ordered)
    if ours is None or theirs is None:
        return None
    if not ordered:
        return _same_unordered(ours, theirs, tolerance)
    if len(ours) != len(theirs):
        return False
    return _all(_same(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))


def _unwrapped(gold: Any, answer: Any) -> tuple[Any, Any]:
    """Both without the `x =` that only one of them has, or that both have alike."""
    from math_verify.grader import is_assignment_relation, is_equation, take_first_relation, take_last_relation

    if is_equation(answer) and not is_equation(gold):
        return gold, take_last_relation(answer).rhs
    if not is_assignment_relation(gold):
        return gold, answer
    if not is_equation(answer):
        return take_last_relation(gold).rhs, answer
    if is_assignment_relation(answer) and take_first_relation(gold).lhs == take_first_relation(answer).lhs:
        return take_last_relation(gold).rhs, take_last_relation(answer).rhs
    return gold, answer


def _contradicts(answer: Any, tolerance: float | None) -> bool:
    """Whether an equation or a chain of them equates different numbers."""
    from sympy import Eq

    relations = getattr(answer, "_unsorted_args", [answer])
    return any(isinstance(part, Eq) and _same(part.lhs, part.rhs, tolerance) is False for part in relations)


def _differs_at_samples(gold: Any, answer: Any, tolerance: float | None) -> bool:
    """Whether two expressions of the same symbols have different values somewhere.

    math-verify's numeric comparison drops coefficients under 1e-15, so it takes 1.6e-19 x for 1.7e-19 x.
    """
    from sympy import Expr, Rational

    if not isinstance(gold, Expr) or not isinstance(answer, Expr) or gold.free_symbols != answer.free_symbols:
        return False
    symbols = sorted(gold.free_symbols, key=lambda symbol: symbol.name)
    for numerator in (29, 53):
        point = {symbol: Rational(numerator + 2 * i, 31) for i, symbol in enumerate(symbols)}
        ours, theirs = (_parts(side, at=point) for side in (gold, answer))
        if ours and theirs and not _close(ours, theirs, 1e-12 if tolerance is None else tolerance):
            return True
    return False


def _same_relation(gold: Any, answer: Any) -> bool | None:
    """Whether two equations or inequalities are one up to a factor; `None` where one of them is none.

    math-verify compares solutions, and takes equations that have none for the same.
    """
    from sympy import Eq, Ne, Rel, cancel, together

    if not isinstance(gold, Rel) or not isinstance(answer, Rel):
        return None
    if gold.free_symbols != answer.free_symbols:
        return False
    if type(gold) is not type(answer):
        answer = answer.reversed
    if type(gold) is not type(answer):
        return False
    sides = [together(relation.lhs - relation.rhs) for relation in (gold, answer)]
    if isinstance(gold, (Eq, Ne)):
        sides = [side.as_numer_denom()[0] for side in sides]
    if sides[0] == 0 or sides[1] == 0:
        return bool(sides[0] == sides[1])
    ratio = cancel(sides[0] / sides[1])
    if ratio.free_symbols:
        ratio = ratio.simplify()
    if ratio.free_symbols:
        return False
    return isinstance(gold, (Eq, Ne)) or bool(ratio.is_positive)


def _unit(text: str) -> str | None:
    match = _TRAILING_WORD.search(text[-40:])
    return _UNITS.get(match[1].lower().replace("metre", "meter").removesuffix("s") or "s") if match else None


def _incompatible(gold: str, answer: str) -> bool:
    """Whether the two texts say in so many words that they are different things with the same numbers in them."""
    bases = [_BASE.fullmatch(text[:200]) for text in (gold, answer)]
    if bases[0] and bases[1] and bases[0][1] != bases[1][1]:
        return True
    units = _unit(gold), _unit(answer)
    if None not in units and units[0] != units[1]:
        return True
    brackets = [(_SPACED.sub("", text[:40]) or " ")[:2] for text in (gold, answer)]
    return any(one == r"\{" and two[0] == "(" for one, two in (brackets, brackets[::-1]))


def _equal(gold: Any, answer: Any, tolerance: float | None) -> bool:
    from math_verify.grader import verify

    if _contradicts(answer, tolerance):
        return False
    gold, answer = _unwrapped(gold, answer)
    equal = _same(gold, answer, tolerance)
    if equal is None:
        equal = _same_relation(gold, answer)
    if equal is not None:
        return equal
    # first, since it is quick and simplifying is not
    return not _differs_at_samples(gold, answer, tolerance) and bool(
        verify(gold, answer, timeout_seconds=None, raise_on_error=True)
    )


def judged(task: dict[str, Any], gold_is_read: Callable[[], None]) -> tuple[bool | None, str]:
    """Whether the answer of a task equals its gold, and the reason in one word.

    Numbers and what is made of them (tuples, sets, intervals, matrices) are compared by value, relative to their
    size: within `rel_tol` where either text has a decimal point, else to all digits. The rest is math-verify's.

    Args:
        task (`dict`): `gold` and `answer`, LaTeX without dollars, and `rel_tol`.
        gold_is_read (`Callable`): called once the gold is parsed; what goes wrong later is put down to the answer.
    """
    from math_verify.grader import should_treat_as_complex

    gold_text, answer_text = task["gold"], task["answer"]
    is_real = not should_treat_as_complex(gold_text) and not should_treat_as_complex(answer_text)
    gold, gold_normalised = _parsed_gold(gold_text, is_real)
    if gold is not None:
        gold_is_read()
    answer, answer_normalised = _parsed(answer_text, is_real)
    if gold is None and gold_normalised and gold_normalised == answer_normalised:
        return True, "equal"
    if gold is None:  # before the answer is blamed: nothing can be compared with such a gold
        return None, "unparsed_gold"
    if answer is None:
        return False, "unparsed_answer"
    decimal = any(_DECIMAL.search(text) for text in (gold_text, answer_text))
    tolerance = float(task["rel_tol"]) if decimal or _SCIENTIFIC.search(gold_text + " " + answer_text) else None
    if _incompatible(gold_text, answer_text):
        return False, "different"
    equal = _attempt(lambda: _equal(gold, answer, tolerance))
    return bool(equal), "error" if equal is None else "equal" if equal else "different"


def _forget() -> None:
    """Drop what a computation cut short may have left behind half done."""
    from sympy.core.cache import clear_cache

    clear_cache()
    _parsed_gold.cache_clear()


def _reply(channel: Channel, clock: Clock, task: dict[str, Any]) -> dict[str, Any]:
    stage = "gold_"

    def gold_is_read() -> None:
        nonlocal stage
        stage = ""
        channel.send({"gold": True})

    reason = "timeout"
    try:
        verdict = clock.within(lambda: judged(task, gold_is_read))
        if verdict is not None:
            return {"equal": verdict[0], "reason": verdict[1]}
    except MemoryError:
        reason = "memory"
    except RecursionError:
        reason = "recursion"
    _forget()
    return {"equal": None if stage else False, "reason": stage + reason}


def _literal(code: str, *namespaces: Any) -> Any:
    """The number or symbol that sympy's parser made code for, without evaluating it; anything else is refused."""
    import sympy

    match = _LITERAL.fullmatch(code)
    if match is None:
        raise ValueError("text is never evaluated as Python here")
    return getattr(sympy, match[1])(match[2])


def _read(gold: str, answer: str) -> None:
    judged({"gold": gold, "answer": answer, "rel_tol": 1e-6}, lambda: None)


def _prepare(first: int) -> None:
    """Load the libraries and read some of everything: the grammar builds its tables as it meets new constructions."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from importlib import import_module

    sympy_parser: Any = import_module("sympy.parsing.sympy_parser")
    import_module("sympy.physics.units")  # makes its symbols from texts; some of sympy's methods import it on their way

    for pair in _WARM_UP[:first]:
        _read(*pair)
    # sympy turns a text that reaches sympify, each number of the grammar's too, into Python code for this eval
    sympy_parser.eval = _literal


def main() -> None:
    """Serve the parent on standard input and output until it goes away."""
    channel = Channel()
    config = channel.receive()
    logging.disable()
    sys.path[:] = config["path"]
    limited = _limit(config["memory_limit_mb"])
    try:
        # where the deadline is short nothing may be left to do first; otherwise an idle moment will do
        first = WARM_FIRST if config["timeout"] >= IDLE_WARM_UP_TIMEOUT else len(_WARM_UP)
        _prepare(first)
    except ImportError as error:
        channel.send({"error": f"{type(error).__name__}: {error}"})
        return
    clock = Clock(config["timeout"])
    channel.send({"ready": True, "limited": limited})
    channel.silence()
    rest = list(_WARM_UP[first:])
    while True:
        while rest and not channel.has_input(IDLE_SECONDS):
            _read(*rest.pop(0))
        reply = _reply(channel, clock, channel.receive())
        # memory that a hostile answer took is seldom given back
        reply["retire"] = 2 * _mapped_bytes() > config["memory_limit_mb"] << 20
        channel.send(reply)


if __name__ == "__main__":
    main()
