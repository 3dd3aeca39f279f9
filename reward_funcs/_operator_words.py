r"""Words that calculate: what stands beside an equation and makes its outer side less than a whole one.

"half of 10 = 5", "3 plus 4 * 2 = 11" and "7 / 2 = 3 remainder 1" are right, but not the signs in them alone. Every
search looks at a bounded stretch of text.
"""

from __future__ import annotations

import re

from reward_funcs.tokens import FUNCTIONS, GREEK

_SPACE = r"[ \t\v]*"
_NUMBER_ENDS = r"[0-9%)\]}$]"


def _one_of(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


# they act on the number behind them: twice 3, sin 30, 3 plus 4
_ACTING = _one_of(
    "times plus minus over per than less more fewer mod modulo twice thrice double[sd]? doubling triple[sd]? tripling "
    "quadruple half halve[sd]? halving negative square squaring cube cubing root sqrt lg gcd lcm hcf max min abs floor "
    f"ceil factorial choose {' '.join(sorted(FUNCTIONS))}"
)
# they have two numbers: 10 divided by 2, divide 10 by 2, 2 raised to 3, 3 to 4, 3 from 10, 10 decreased by 2
_BETWEEN = r"(?:divi|multipl)[a-z]+[ \t]+(?:\S+[ \t]+)?by|raised[ \t]+to|to[ \t]+the"
_BEHIND_A_NUMBER = r"(?:to|from|into|versus|vs\.?|(?:\w+[ \t]+)?by)"
_BEFORE = re.compile(rf"(?:\b(?:{_ACTING}|{_BETWEEN})|{_NUMBER_ENDS}{_SPACE}{_BEHIND_A_NUMBER})$", re.IGNORECASE)

_OF = re.compile(r"(\S+)[ \t\v]+of$|^of$", re.IGNORECASE)
# what they take is computed with what is behind "of"; behind other words a calculation may follow: a total of 3 + 4 = 7
_PARTS = re.compile(
    _one_of(
        "half one-half halves thirds? one-third two-thirds fourths? quarters? one-quarter three-quarters "
        "(?:fif|six|seven|eigh|nin|ten|hundred|thousand)ths? per\\s?cent(?:age)? fraction out all each most rest "
        "remainder quotient ratio value part floor ceiling square cube root power multiple factor factorial digits "
        "negative opposite inverse reciprocal modulus average mean median mode range max(?:imum)? min(?:imum)? "
        "log(?:arithm)? (?:co)?sine tangent double triple"
    )
    + "|.*[0-9%)}$]",
    re.IGNORECASE,
)

# a number alone that belongs to one before it: the sum of 3 and 4, the average of 2, 4, 20% off 50, 3 out of every 4
_LIST_ENDS = re.compile(rf"{_NUMBER_ENDS}(?:{_SPACE}[,;&]|(?:{_SPACE}\b[a-z]+){{1,3}})$|\bby$", re.IGNORECASE)
_SUMMING = _one_of(
    "sum total difference product average mean median mode range ratio quotient multiple divisor factor lcm gcd hcf "
    "max(?:imum)? min(?:imum)?"
)
_LISTED = re.compile(
    rf"\b(?:{_SUMMING}[ \t]+(?:of|between)|(?:add|subtract|multiply|averag|divid)(?:e|ing)?)\b[^=.!?;\n]*"
    rf"{_NUMBER_ENDS}{_SPACE}(?:,|,?{_SPACE}and|or)$",
    re.IGNORECASE,
)
# the number of something: Week 1 + Week 2 = 70
_LABEL = re.compile(_one_of("week day month year hour step part number group team person page box side") + "s?$", re.I)
_BARE = re.compile(r"[-+−–$ ]*[0-9][0-9,.]*[ \t]*\\?%?[ \t]*")

_FRACTIONS = "thirds fourths (?:fif|six|seven|eigh|nin|ten|hundred|thousand)ths"
# they act on the number before them: 7 times, 5 squared, 2 million, 2 thirds
_ACTING_BEHIND = _one_of(
    "times plus minus over of by(?=\\s[$]?[0-9(]) per\\s?cent(?!age\\spoints)[a-z]* pct divided multiplied mod modulo "
    f"squared cubed factorial choose dozen hundred thousand million billion trillion {_FRACTIONS}"
)
# they say that the number is not the whole result: 3 with remainder 1, 3 rounded down, 3 and a half
_REST = (
    r"[^=.!?;\n]{0,40}\bremainder\b"
    rf"|[,;(]?{_SPACE}(?:with[ \t]+)?(?:rem\b|round(?:ed|ing)\b|round[ \t]+(?:up|down|off|to)\b)"
    r"|(?:with|and|leaving|leaves)[ \t]+(?:[0-9]+[ \t]+(?:left|remaining|over)|[($]*[0-9]+[ \t]*/"
    r"|(?:an?|one)[ \t-]+(?:half|third|quarter))"
)
_BEHIND = re.compile(rf"{_SPACE}(?:{_ACTING_BEHIND}\b|{_REST})", re.IGNORECASE)

#: names of LaTeX that go on with the number before them, even behind a space: 7 \pi
FACTORS = "|".join(sorted(GREEK | FUNCTIONS)) + "|pi|infty|circ|degree|[lc]?dots|binom|[bp]?mod|pm"


def acts_before(before: str, part: str) -> bool:
    """Whether the text before the first side of an equation ends in a word that calculates with it.

    Args:
        before (`str`): a bounded stretch of text; of several lines the last one counts.
        part (`str`): the side, as far as it is written in signs.

    Example:

    ```python
    >>> acts_before("The square of ", "3"), acts_before("the sum of 3 and ", "4"), acts_before("a total of ", "3 + 4")
    (True, True, False)

    ```
    """
    before = before.rpartition("\n")[2].rstrip(" \t\v$\\")
    if _BEFORE.search(before) or _LISTED.search(before):
        return True
    is_bare = _BARE.fullmatch(part) is not None
    if (found := _OF.search(before)) is not None:
        return is_bare or _PARTS.fullmatch(found[1] or "") is not None
    return is_bare and (_LIST_ENDS.search(before) or _LABEL.search(before)) is not None


def acts_behind(text: str, end: int) -> bool:
    """Whether a word that calculates with the last side of an equation stands behind it.

    Args:
        text (`str`): the text.
        end (`int`): offset behind the side.

    Example:

    ```python
    >>> acts_behind("7/2 = 3 with remainder 1", 7), acts_behind("3 + 4 = 7 with ease", 9)
    (True, False)

    ```
    """
    return _BEHIND.match(text, end) is not None
