r"""One form for the many ways to typeset an answer: layout taken out, numbers and units each written in one way."""

from __future__ import annotations

import re
import unicodedata

# what people and models write instead of LaTeX
_ASCII = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2014\u2010\u2011", "-"),
        **dict.fromkeys("\u22c5\u00b7\u2219", r"\cdot "),
        **dict.fromkeys("\u00f7\u2215\u2044", "/"),
        **dict.fromkeys("\u20ac\u00a3\u00a5", r"\$"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),  # no width
        **{chr(0x2080 + digit): f"_{digit}" for digit in range(10)},
        **{superscript: f"^{digit}" for digit, superscript in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        **{"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅙": " 1/6", "⅛": " 1/8"},
        **{"×": r"\times ", "√": r"\sqrt ", "∞": r"\infty ", "°": r"^\circ ", "±": r"\pm ", "∓": r"\mp "},
        **{"≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "∈": r"\in "},
        **{"∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "、": ",", "。": ".", "∶": ":"},
        **{"π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda "},
    }
)

# what changes how maths looks and not what it says
_LAYOUT = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\.?"
    r"|\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|rm|bf|it|hfill|noindent|mathstrut"
    r"|[lL]arge|LARGE|huge|Huge|small|normalsize|boldsymbol|bm|therefore|checkmark)(?![a-zA-Z])"
    r"|\\phantom\{[^{}]*\}|\\(?:text)?color ?\{[^{}]*\}|\\(?:underline|mathrm(?=\{[0-9]))(?![a-zA-Z])"
)
_ROOT_SIGN = re.compile("\u221a ?([0-9]+(?:\\.[0-9]+)?|[a-zA-Z])")
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]{2,}")


def _lowered(match: re.Match[str]) -> str:
    digits = match.group().translate(_RAISED_DIGITS)
    return f"^{{{digits}}}"


_RAISED_DIGITS = {ord(raised): str(digit) for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {0x207B: "-"}
_ESCAPED_SPACE = re.compile(r"(?<!\\)\\ ")
_NEW_ROW = re.compile(r"\\\\(?:\[[^\[\]]{0,20}\])?")
_SPACE = re.compile(r"\\[,;:!> ]|~|\\q?quad(?![a-zA-Z])|\\hspace\*?\{[^{}]*\}|[\s\x00]+")
# "angle ABC" and "triangle ABC" name the same letters
_SILENT = re.compile(r"^\s*\\approx(?![a-zA-Z])|\\(?:triangle|angle|measuredangle)(?![a-zA-Z])")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_DEGREES = re.compile(r"\^\s*(?:\{\s*)?\\circ(?:\s*\})?|\\degree(?:s)?(?![a-zA-Z])|\\textdegree(?![a-zA-Z])")
_THOUSANDS_MARK = re.compile(r"(?<=[0-9])(?:\{,\}|\\,|,\\!|\{\\,\}|\\!|\\ |\\;|\\:)(?=[0-9]{3}(?![0-9]))")
_THOUSANDS = re.compile(r"(?<![\w.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_SPACED_THOUSANDS = re.compile(r"(?<![\w.,/])([0-9]{1,3})((?: [0-9]{3})+)(?![0-9])")
_SCIENTIFIC = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE]([-+]?[0-9]{1,4})(?![\w.])")
_MIXED = re.compile(r"(?<![\w.}/^_])([0-9]{1,15}) ([0-9]{1,15})/([0-9]{1,15})(?![\w./])")
_MIXED_LATEX = re.compile(
    r"(?<![\w.}^_{/])([0-9]{1,15}) ?\\frac ?(?:\{ ?([0-9]{1,15}) ?\} ?\{ ?([0-9]{1,15}) ?\}|([0-9])([0-9])(?![0-9]))"
)
_BARE_DOLLAR = re.compile(r"^(-?) ?\$ ?(?=[0-9.-])")


def plain(text: str) -> str:
    """The text with layout taken out: one form for the many ways to typeset the same answer.

    Args:
        text (`str`): LaTeX or plain text, with or without `$`.

    Returns:
        `str`: text that is equal for answers that differ only in layout.
    """
    text = _ROOT_SIGN.sub(r"\\sqrt{\1}", text) if "\u221a" in text else text
    text = _RAISED.sub(_lowered, text) if _RAISED.search(text) else text
    text = unwrapped(_ESCAPED_SPACE.sub(" ", text) if "\\ " in text else text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_ASCII)).translate(_ASCII)
    text = _THOUSANDS_MARK.sub("", text)
    if "\\" in text:
        text = _NEW_ROW.sub(r"\\cr ", text)
        text = _LAYOUT.sub(" ", text)
        text = _FRACTION.sub(r"\\frac", text)
        text = _DEGREES.sub(r"\\deg ", text)
        text = (
            text.replace(r"\lbrace", r"\{").replace(r"\rbrace", r"\}").replace(r"\lvert", "|").replace(r"\rvert", "|")
        )
        text = text.replace(r"\lor", r"\text{or}").replace(r"\vee", r"\text{or}")
        text = text.replace(r"\langle", "(").replace(r"\rangle", ")")
        text = _SILENT.sub(" ", text)
        text = text.replace(r"\dots", r"\ldots").replace(r"\varnothing", r"\emptyset").replace("{\\%}", "\\%")
    text = _SPACE.sub(" ", text).strip().replace("{:}", ":")
    text = _BARE_DOLLAR.sub(r"\1\\$", text)
    while text.endswith((".", ",", ";")) and not text.endswith("\\,"):
        text = text[:-1].rstrip()
    return text.removesuffix("\\").rstrip() if text.endswith("\\") and not text.endswith("\\\\") else text


def typeset(text: str) -> str:
    """A [`plain`] text as LaTeX again, for readers other than ours."""
    return text.replace(r"\deg", r"^{\circ}").replace(r"\cr ", r"\\ ")


_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))


def unwrapped(text: str) -> str:
    r"""The text without the `$`, `\(...\)`, `\[...\]` or `\boxed{...}` around all of it."""
    text = text.strip()
    for _ in range(4):
        before = text
        # a full stop behind the closing delimiter, and emphasis
        while (
            text.endswith((".", ",", ";"))
            and text[:1] in "$\\*_"
            and text[:-1].rstrip().endswith(("$", ")", "]", "}", "*", "_"))
        ):
            text = text[:-1].rstrip()
        for mark in ("**", "__"):
            if text.startswith(mark) and text.endswith(mark) and len(text) > 2 * len(mark):
                text = text[len(mark) : -len(mark)].strip()
        for opening, closing in _DELIMITERS:
            if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
                if opening not in text[len(opening) : -len(closing)]:
                    text = text[len(opening) : -len(closing)].strip()
        for box in (r"\boxed{", r"\fbox{"):
            if text.startswith(box) and text.endswith("}") and _closes_last(text, len(box)):
                text = text[len(box) : -1].strip()
        if text == before:
            break
    return text


def _closes_last(text: str, start: int) -> bool:
    depth = 1
    for position in range(start, len(text)):
        if text[position] == "{" and text[position - 1] != "\\":
            depth += 1
        elif text[position] == "}" and text[position - 1] != "\\":
            depth -= 1
            if depth == 0:
                return position == len(text) - 1
    return False


def _mixed_text(match: re.Match[str]) -> str:
    whole, top, bottom = match.groups()
    return rf"({whole}+{top}/{bottom})" if int(top) < int(bottom) else match.group()


def _mixed_latex(match: re.Match[str]) -> str:
    whole, top, bottom, short_top, short_bottom = match.groups()
    top, bottom = top or short_top, bottom or short_bottom
    return rf"({whole}+\frac{{{top}}}{{{bottom}}})" if int(top) < int(bottom) else match.group()


_NEGATIVE = re.compile(r"^(?:negative|minus) (?=[0-9.\\])", re.IGNORECASE)
_LETTERS = re.compile(r"^\\text(?:bf|it|rm)? ?\{ ?([A-Z](?: ?, ?[A-Z])+) ?\}$")
_REPEATING = re.compile(r"(?<![\w.])([0-9]{0,15})\. ?([0-9]{0,15}) ?\\overline ?\{ ?([0-9]{1,15}) ?\}")
# sqrt(2) and pi/4 in plain text are not products of their letters
_SPELLED = re.compile(
    r"(?<![a-zA-Z\\{])(?:sqrt|pi|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|infinity|theta)(?![a-zA-Z])"
)
# units that nobody means as a product of variables
_BARE_UNIT = re.compile(
    r"(?<=[0-9)}]) ?("
    r"[ckm]m|mm|kg|mg|m[lL]|ft|inch(?:es)?|feet|foot|met(?:er|re)s?|centimet(?:er|re)s?|kilomet(?:er|re)s?|miles?|mph|"
    r"yards?|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?|weeks?|months?|years?|dollars?|cents?|degrees?|percent|"
    r"grams?|kilograms?|lit(?:er|re)s?|pounds?|lbs?|ounces?|units?|[AaPp]\.?[Mm]\.?"
    r")(?![a-zA-Z])"
)


# words behind a number with a space between: 5 apples
_BARE_WORD = re.compile(r"(?<=[0-9)}]) +([a-z]{3,}(?: [a-z]{3,})?)$")


def prepared(text: str) -> str:
    """A [`plain`] text with its numbers and units each in one form, for [`reward_funcs.reader`]."""
    if "," in text:
        if not _bracketed(text):
            text = _THOUSANDS.sub(lambda m: m.group().replace(",", ""), text)
        text = _LETTERS.sub(r"\1", text)
    if " " in text:
        text = _SPACED_THOUSANDS.sub(lambda m: m.group().replace(" ", ""), text)
        text = _MIXED.sub(_mixed_text, text)
        text = _NEGATIVE.sub("-", text)
    if "\\frac" in text:
        text = _MIXED_LATEX.sub(_mixed_latex, text)
    if "\\overline" in text:
        text = _REPEATING.sub(_repeating, text)
    text = _SPELLED.sub(lambda m: "\\infty" if m.group() == "infinity" else "\\" + m.group(), text)
    text = _BARE_UNIT.sub(r"\\text{\1}", text)
    text = _BARE_WORD.sub(r"\\text{\1}", text)
    return _SCIENTIFIC.sub(r"\1\\cdot 10^{\2}", text)


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match.groups()
    nines = "9" * len(period) + "0" * len(fixed)
    return rf"(\frac{{{int(whole + fixed + period) - int(whole + fixed or '0')}}}{{{nines}}})"


def _bracketed(text: str) -> bool:
    # (1,234) is a pair, 1,234 is a number
    return text[0] in "([" or text.startswith("\\{")
