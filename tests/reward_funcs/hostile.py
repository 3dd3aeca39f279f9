"""Answers that hang, crash or fool graders: what has been seen in the wild, and families of the same kinds.

Everything here is text; nothing evaluates it but the code under test.
"""

from __future__ import annotations

from collections.abc import Iterator


def nested(opening: str, closing: str, depth: int, core: str = "1") -> str:
    """A core inside so many pairs."""
    return opening * depth + core + closing * depth


def power_tower(base: str, height: int) -> str:
    r"""`base^{base^{...}}`."""
    return nested(f"{base}^{{", "}", height - 1, base)


def continued_fraction(depth: int) -> str:
    r"""`1+\frac{1}{1+\frac{1}{...}}`; each level doubles what a printer of sympy needs."""
    return nested(r"1+\frac{1}{", "}", depth)


def matrix(rows: int, columns: int) -> str:
    """A matrix of whole numbers."""
    body = r"\\".join("&".join(str(i * columns + j) for j in range(columns)) for i in range(rows))
    return rf"\begin{{pmatrix}}{body}\end{{pmatrix}}"


def _huge_numbers() -> Iterator[tuple[str, str]]:
    for base, height in (("9", 3), ("9", 4), ("2", 6), ("10", 4), ("x", 8), ("x", 30), ("1.5", 5)):
        yield "power_tower", power_tower(base, height)
    yield "power_tower", r"{9^9}^{9^9}"
    for text in (r"10^{-10^9}", r"10^{-10^{10}}", r"2^{-9^{9^9}}", r"\frac{1}{9^{9^{9}}}", r"(-9)^{-9^{9}}"):
        yield "negative_tower", text
    for text in ("10000000!", "99999999!", "(10^9)!", r"\frac{10000000!}{9999999!}", "(-5)!", "(1/2)!", "1000000!-1"):
        yield "factorial", text
    for count in (2, 3, 4, 5, 6, 12, 40):
        yield "nested_factorial", "5" + "!" * count
    for top, bottom in (("10^8", "5\\cdot10^7"), ("100000000", "50000000"), ("10^{20}", "10^{10}"), ("-7", "10^9")):
        yield "binomial", rf"\binom{{{top}}}{{{bottom}}}"
    yield "binomial", r"\binom{\binom{100}{50}}{\binom{50}{25}}"
    for text in (
        "x^{10^9}",
        "(x+1)^{10^9}",
        "1.0000001^{10^{12}}",
        "7^{10^{12}} \\bmod 13",
        "2^{2^{2^{20}}}",
        "1e999999999",
    ):
        yield "huge_exponent", text
    for digits in (4000, 5000, 100_000):
        yield "long_number", "7" * digits
    yield "long_number", "0." + "3" * 50_000
    yield "long_number", "1" + ",000" * 5000


def _sums_and_series() -> Iterator[tuple[str, str]]:
    for term in ("k", "k^{k}", r"\sin(k)", r"\frac{1}{k^2}", "k!"):
        yield "sum", rf"\sum_{{k=1}}^{{1000000}} {term}"
    yield "sum", r"\sum_{k=1}^{10^{10}} \frac{1}{k}"
    yield "sum", r"\sum_{i=1}^{1000}\sum_{j=1}^{1000}\sum_{k=1}^{1000} \sin(ijk)"
    for term in ("k", r"(1+\frac{1}{k^2})", r"\cos(k)", "k^k"):
        yield "product", rf"\prod_{{k=1}}^{{1000000}} {term}"
    for count in (20, 60):
        yield "trig_product", "".join(rf"\sin({k}x)\cos({k}x)" for k in range(1, count))
    yield "trig_product", r"\cdot".join(rf"\sin({k}^\circ)" for k in range(1, 90))
    yield "trig_product", r"\sin(" * 40 + "x" + ")" * 40
    yield "integral", r"\int_0^{1000} \sin(x^x) \cos(e^x) dx"
    yield "integral", r"\int \frac{\sin(x)^{50}}{x^{31}+x^7+1} dx"
    yield "integral", r"\int_0^1\int_0^1\int_0^1 e^{xyz}\sin(x+y+z) dx"
    yield "integral", r"\int_{-\infty}^{\infty} e^{-x^2}\cos(x^3) dx"
    yield "limit", r"\lim_{x \to 0} \frac{\sin(\tan x)-\tan(\sin x)}{x^{700}}"
    yield "limit", r"\lim_{x \to \infty} x^{x^{x}} / (x!)^{x}"
    yield "limit", r"\lim_{n \to \infty} (1+\frac{1}{n})^{n^{n}}"


def _algebra() -> Iterator[tuple[str, str]]:
    for power in (1000, 100_000):
        yield "expansion", rf"(1+x)^{{{power}}}"
        yield "expansion", rf"(a+b+c+d+e+f)^{{{power}}}"
    yield "expansion", "".join(f"(x+{k})" for k in range(1, 200))
    yield "expansion", nested("(", ")^{10}+1", 12, "x+y")
    yield "equation", "x^{7}-3x^{5}+x-1=e^{x}"
    yield "equation", r"\sin(x)+\cos(x^2)=\tan(x)+\ln(x)"
    yield "equation", r"\sqrt{x+\sqrt{x+\sqrt{x+\sqrt{x+1}}}}=x^{11}+7"
    yield "equation", "x^{50}+x^{49}+x^{48}+x+1>0"
    yield "equation", "=".join(["4", "5", "6", "7"])
    yield "equation", "=".join(["x"] * 3000)
    yield "equation", "x^2+y^2+z^2=w^5, xyzw=17, x+y=e^{z}"
    yield "algebraic", "+".join(rf"\sqrt{{{k}}}" for k in range(2, 60))
    yield "algebraic", r"\sqrt[97]{2+\sqrt[89]{3+\sqrt[83]{5}}}"
    yield "algebraic", r"\frac{1}{" + "+".join(rf"\sqrt[{k}]{{{k}}}" for k in range(2, 20)) + "}"
    for text in (
        r"e^{\pi\sqrt{163}}-262537412640768744",
        r"\cos(10^{100})",
        r"\tan(10^{30}\pi+\frac{\pi}{4})",
        r"\ln(0)",
    ):
        yield "cancellation", text
    for text in (r"\frac{1}{0}", r"0^0", r"0^{-1}", r"\infty-\infty", r"\log_1 5", r"i^{i^{i}}", r"(-1)^{\pi}"):
        yield "undefined", text
    for rows, columns in ((60, 60), (300, 300), (1, 3000)):
        yield "matrix", matrix(rows, columns)
    yield "matrix", rf"\det {matrix(25, 25)}"
    yield "matrix", matrix(8, 8) + r"^{1000000}"
    yield "matrix", r"\operatorname{eye}(100000)"
    yield "matrix", r"\operatorname{zeros}(30000,30000)"
    yield "set", r"\{" + ",".join(str(k) for k in range(3000)) + r"\}"
    yield "set", "(" + ",".join(rf"\sqrt{{{k}}}" for k in range(400)) + ")"
    yield "set", r"\cup".join(f"({k},{k + 1})" for k in range(300))
    yield "gcd", r"\gcd(9^{9^9},3^{9^9})"
    yield "gcd", r"\operatorname{lcm}(" + ",".join(str(k) for k in range(1, 500)) + ")"
    yield "floor", r"\lfloor \pi^{\pi^{\pi^{\pi}}} \rfloor"


def _nesting() -> Iterator[tuple[str, str]]:
    for depth in (21, 25, 60, 400):
        yield "continued_fraction", continued_fraction(depth)
    for depth in (30, 300, 10_000):
        yield "deep_parentheses", nested("(", ")", depth)
        yield "nested_braces", nested("{", "}", depth)
    for depth in (40, 2000):
        yield "deep_roots", nested(r"\sqrt{", "}", depth, "2")
        yield "deep_bars", nested(r"\left|", r"\right|", depth, "x")
    yield "deep_sign", "-" * 5000 + "1"
    yield "deep_subscript", nested("x_{", "}", 200, "x")
    yield "deep_fraction", nested(r"\frac{1}{2}{", "}", 100)
    yield "deep_bracket", nested("[", "]", 500)
    yield "deep_set", nested(r"\{", r"\}", 100)


def _text() -> Iterator[tuple[str, str]]:
    for text in (
        r"\frac{",
        r"\frac{1",
        "((((",
        "))))",
        r"\left(",
        r"\right)",
        "^",
        "_",
        "^_^",
        "{}{}",
        r"\\",
        "\\",
        "&&&",
    ):
        yield "unbalanced", text
    yield "unbalanced", "{" * 20_000
    yield "unbalanced", "}" * 20_000
    yield "repeated", r"\(" * 50_000
    yield "repeated", r"\boxed{" * 5000
    yield "repeated", r"\boxed{5}" * 5000
    yield "repeated", "$" * 20_001
    yield "repeated", r"\frac" * 20_000
    yield "repeated", r"\text{a} " * 10_000
    yield "repeated", "1+" * 3000 + "1"
    yield "repeated", "1 " * 10_000
    yield "repeated", "x" * 3000
    yield "long", "a" * 100_000
    yield "long", "word " * 20_000
    yield "long", " " * 100_000
    yield "long", "\n" * 100_000
    yield "long", "\\" * 100_000
    yield "long", "(" + "9" * 50_000 + ")_{" + "9" * 40_000
    for text in (
        "",
        " ",
        "\0",
        "5\0",
        "\0" * 1000,
        "\ud800",
        "5\udfff",
        "\ud800\udc00",
        "\u202e5",
        "\ufeff5",
        "５",
        "٥",
    ):
        yield "characters", text
    yield "characters", "\U0001f600" * 1000
    yield "characters", "".join(map(chr, range(1, 600)))
    for text in (
        "__import__('os').system('exit 1')",
        "exec('import sys; sys.exit(0)')",
        "().__class__.__bases__[0].__subclasses__()",
        r"\operatorname{__import__}(os)",
        "lambda: 5",
        "sys.exit(0)",
        '{"equal": true, "reason": "equal"}',
    ):
        yield "code", text


def hostile_answers() -> list[tuple[str, str]]:
    r"""About 175 answers, each with the name of its family, LaTeX without dollars or what claims to be.

    None of them equals 5, 7, or $\frac{1}{2}$ but the two of the family `characters` that are the digit five in
    another script or behind an invisible mark, and those of `repeated` that are boxes of it.

    Example:

    ```python
    >>> dict(hostile_answers())["floor"]
    '\\lfloor \\pi^{\\pi^{\\pi^{\\pi}}} \\rfloor'

    ```
    """
    return [*_huge_numbers(), *_sums_and_series(), *_algebra(), *_nesting(), *_text()]
