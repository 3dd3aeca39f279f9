"""What of a completion is prose: the text without formulas, code, links, tags and invisible characters.

Nothing that a model can hide words in is dropped unread: what is left out is looked through for words that belong to no
markup, and those are returned beside the prose. Every pattern is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from reward_funcs.extract import THINK_CLOSE, THINK_OPEN

INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_FENCE = re.compile(r"```+|\[/?asy\]")
_INLINE_CODE = re.compile(r"`([^`\n]{1,1000})`")
_CODE_MARK = re.compile(r"[(){}\[\]=;_<>#*+/\\|&^%$@\"]")
_URL = re.compile(r"(?:https?://|www\.)[!-~]+")
TAG = re.compile(r"<[/!]?[A-Za-z][!-;=?-~ ]{0,80}>|<<[-+*/=().,%$0-9 ]{1,80}>>")
_ESCAPED = re.compile(r"\\[$%&#_{}]")
_DELIMITER = r"(?:\$|\\[()\[\]]|\\(?:begin|end)\{[^{}\n]{0,40}\})"
_FORMULA = re.compile(rf"({_DELIMITER}(?:\s*{_DELIMITER})*)")
_SIDE, _OPENING = re.compile(r"\\(?:[()\[\]]|begin|end)"), (r"\(", r"\[", r"\begin")
_TEXT_COMMAND = re.compile(r"\\(?:text[a-z]*|mbox|operatorname|mathrm)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[A-Za-z]++\*?|\\.")
_PROSE = re.compile(r"(?<![^\W\d_])(?:[^\W\d_]{3,}+[\s,]++[^\W\d_]{2,}|[^\W\d_]{2}[\s,]++[^\W\d_]{3,})")
_ASCII = re.compile(r"[\x00-\x7f]+")
_WORD = re.compile(r"[A-Za-z]{3,}")
_CAMEL = re.compile("(?<=[a-z\u00df-\u00ff])(?=[A-Z\u00c0-\u00de][a-z\u00df-\u00ff])")
# n-e-e-d and n e e d: letters apart, which would all be variables
_SPELLED = re.compile(r"(?<![^\W\d_])[A-Za-z]([-._*'’~ ])[A-Za-z](?:\1[A-Za-z])+(?![^\W\d_])")
_SPACED_LETTERS, _PIECE = 4, 5  # fewest letters apart by spaces that are words, and letters a word of these
_ENVIRONMENT = re.compile(r"\\begin\{([^{}\n]{0,40})\}")
_INLINE_TAG = re.compile("</?(?:a|b|big|code|em|i|kbd|mark|s|small|span|strong|sub|sup|tt|u)\\b", re.IGNORECASE)
# words of LaTeX, HTML, code and addresses; single ones more do no harm, see `_TOLERATED` in language.py
_KNOWN = frozenset(
    """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda omicron rho varrho sigma
    varsigma tau upsilon phi varphi chi psi omega digamma ell hbar imath jmath aleph beth nabla partial infty emptyset
    varnothing forall exists nexists neg not lnot land lor vee wedge top bot vdash models implies iff impliedby
    therefore because leq geq leqslant geqslant neq equiv approx cong sim simeq propto asymp doteq prec succ preceq
    succeq subset supset subseteq supseteq subsetneq sqsubset notin cap cup bigcap bigcup setminus uplus sqcup times div
    cdot cdots ldots dots dotsb dotsc dotsm vdots ddots ast star circ bullet oplus otimes ominus odot bigoplus bigotimes
    dagger ddagger amalg frac dfrac tfrac cfrac sqrt root binom dbinom tbinom choose over atop above brace brack sum
    prod coprod int iint iiint oint lim limsup liminf limits nolimits sup inf max min arg det dim ker gcd lcm deg hom
    sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot log exp mod bmod pmod pod sgn tr rank span
    left right middle big bigg bigl bigr biggl biggr langle rangle lfloor rfloor lceil rceil lvert rvert lbrace rbrace
    lbrack rbrack mid nmid parallel perp angle measuredangle triangle square blacksquare box diamond qed hat bar tilde
    vec dot ddot dddot acute grave check breve widehat widetilde overline underline overrightarrow overleftarrow
    overleftrightarrow overbrace underbrace overset underset stackrel substack sideset prime boxed fbox framebox tag
    label ref eqref cite text textbf textit textrm textsf texttt textsc textup textnormal emph underbar mbox hbox vbox
    mathrm mathbf mathbb mathcal mathfrak mathsf mathit mathtt mathscr mathop mathbin mathrel mathord mathclose
    boldsymbol bold operatorname displaystyle textstyle scriptstyle scriptscriptstyle cal rm tiny small large huge
    normalsize quad qquad hspace vspace hskip vskip kern mkern space phantom hphantom vphantom smash hfill hline cline
    toprule midrule bottomrule multicolumn multirow arraystretch renewcommand newcommand def begin end item noindent
    indent par newline linebreak allowbreak smallskip medskip bigskip centering caption include graphics cancel bcancel
    xcancel color textcolor colorbox degree celsius percent leftarrow rightarrow leftrightarrow longrightarrow
    longleftarrow longleftrightarrow mapsto longmapsto uparrow downarrow updownarrow nearrow searrow swarrow nwarrow
    xrightarrow xleftarrow rightharpoonup hookrightarrow gets clubsuit spadesuit heartsuit diamondsuit colon backslash
    array matrix pmatrix bmatrix vmatrix smallmatrix align aligned alignat gather gathered equation multline split cases
    eqnarray tabular table figure center enumerate itemize description verbatim minipage theorem lemma proof tikzpicture
    div img href src alt title class style width height head body html table tbody thead br hr pre code em strong sub
    think answer http https www com org net edu gov html htm php wiki wikipedia github index
    return for while else elif if in and or is as from import print range len int float str list dict set tuple bool
    true false none null lambda try except raise pass break continue with yield assert self const let var function void
    double char string public static new append input output math abs pow round sorted map filter zip
    kwh mph rpm usd
    """.split()
)
# what sentences are held together by and programs are not; a third to a half of the words of a text
_FUNCTION_WORDS = frozenset(
    """
    the we you they it he she that these those there thus hence therefore because so but of to need have has had be been
    was were are can could should would will must first next now us our both what which when how than all also
    der die das und wir sie ist sind nicht mit ein eine dann also auf den dem zu fur daher zuerst beide werden
    le la les des et nous vous est sont une dans pour donc puis que qui sur avec
    el los las para por luego entonces son como se il lo gli che per sono quindi poi della os uma het een van wij zijn
    dus dan
    """.split()
)
_FUNCTION_SHARE = 0.25


class Prose(NamedTuple):
    """What of a text is prose, and the words in what was left out that belong to no markup, each once."""

    text: str
    hidden: list[str]


def _words_in(pieces: Iterable[str]) -> list[str]:
    """Different words of three letters and more, without names of points and what belongs to formulas and code."""
    found = dict.fromkeys(split_camel(_WORD.findall("\n".join(pieces))))
    words = dict.fromkeys(word.lower() for word in found if len(word) > 5 or (len(word) > 2 and not word.isupper()))
    return [word for word in words if word not in _KNOWN]


def split_camel(words: Iterable[str]) -> list[str]:
    """Words with those that were written as one by capitals, such as `WeNeedThis`, apart.

    Example:

    ```python
    >>> split_camel(["WeNeedThis", "USA", "plain"])
    ['We', 'Need', 'This', 'USA', 'plain']

    ```
    """
    return [part for word in words for part in _CAMEL.sub(" ", word).split(" ")]


def _spelled(text: str) -> list[str]:
    """Words whose letters stand apart."""
    words = []
    for match in _SPELLED.finditer(text):
        letters = match[0].replace(match[1], "")
        if match[1] != " ":
            words.append(letters)
        elif len(letters) >= _SPACED_LETTERS and not letters.isupper():
            words += [letters[i : i + _PIECE] for i in range(0, len(letters), _PIECE)]
    return words


def _remains(hidden: str) -> str:
    """What counts of a formula or a piece of code: all of it when it reads as prose, else its non-ASCII letters."""
    if hidden.isascii():
        return ""
    return _ASCII.sub(lambda match: "\n" if "\n" in match[0] else " ", hidden)


def _without_code(text: str, dropped: list[str]) -> str:
    parts = _FENCE.split(text)
    closed = len(parts) - 1 if len(parts) % 2 == 0 else len(parts)  # an odd fence hides nothing
    kept = [_block_remains(part) if i % 2 and i < closed else part for i, part in enumerate(parts)]
    return _INLINE_CODE.sub(lambda match: _code_remains(match[1], dropped), "\n".join(kept))


def _is_prose(code: str) -> bool:
    # prose has about one such character in a hundred, a program one in five
    return bool(_PROSE.search(code)) and len(_CODE_MARK.findall(code)) * 20 < len(code)


def _block_remains(code: str) -> str:
    if _is_prose(code):
        return code
    words = re.findall("[A-Za-z]{2,}", code)
    function_words = sum(word.lower() in _FUNCTION_WORDS for word in words)
    if function_words >= 3 and function_words >= _FUNCTION_SHARE * len(words):
        return f"\n{' '.join(words)}\n{_remains(code)}\n"
    return f" {_remains(code)} "  # a program of any length is welcome, so its names are not held against it


def _code_remains(code: str, dropped: list[str]) -> str:
    if _is_prose(code):
        return code
    dropped.append(code)
    return f" {_remains(code)} "


def _without_tag(tag: str, dropped: list[str]) -> str:
    if _PROSE.search(tag):
        return tag
    dropped.append(tag)
    # sentences on both sides of a tag are identified apart, those around <b> together
    return " " if _INLINE_TAG.match(tag) else "\n"


def _without_urls(text: str, dropped: list[str]) -> str:
    dropped += _URL.findall(text)
    return _URL.sub(" ", text)


def _without_formulas(text: str, dropped: list[str]) -> str:
    """The text without what stands between two delimiters of formulas, unless that reads as prose."""
    dropped += [match[0][1:] for match in _COMMAND.finditer(text) if match[0][1:] not in _KNOWN]
    environments = [name for name in set(_ENVIRONMENT.findall(text)) if name.rstrip("*") not in _KNOWN]
    dropped += [name for name in environments if not _PROSE.search(name)]
    kept_names = [f"{name}\n" for name in environments if _PROSE.search(name)]
    parts = _FORMULA.split(_ESCAPED.sub(" ", text))  # prose, delimiters, part, delimiters, part, ...
    kept, in_formula = [*kept_names, _without_commands(parts[0])], False
    for i in range(1, len(parts), 2):
        delimiters, part, end = parts[i], parts[i + 1], parts[i + 2] if i + 2 < len(parts) else ""
        side = _SIDE.findall(delimiters)
        opens, needed = (side[-1] in _OPENING, "") if side else (not in_formula, "$")
        # a dollar without a partner, as in "$5 and then $6", must not turn the rest inside out
        in_formula = opens and end != "" and needed in end and not _PROSE.search(_bare(part))
        if in_formula:
            bare = _bare(part)
            dropped.append(bare)
            kept += [*_TEXT_COMMAND.findall(part), _remains(bare)]
        else:
            kept.append(_without_commands(part))
    return " ".join(kept)


def _bare(formula: str) -> str:
    return _COMMAND.sub(" ", _TEXT_COMMAND.sub(" ", formula))


def _without_commands(text: str) -> str:
    return _COMMAND.sub(" ", _TEXT_COMMAND.sub(r" \1 ", text)) if "\\" in text else text


def prose(text: str) -> str:
    """The text without formulas, code, links, tags, LaTeX commands and invisible characters.

    What a formula or a piece of code says in words stays: the contents of `\\text{}`, letters outside ASCII, and the
    whole of it when words follow each other as in a sentence (in code, with fewer than one sign of code in twenty
    characters). A `$` or a fence without a partner hides nothing.

    Args:
        text (`str`): any text.

    Returns:
        `str`: what is left, with other spacing.

    Example:

    ```python
    >>> prose(r"So $x = \\frac{1}{2}$ and `y += 1`").split()
    ['So', 'and']

    ```
    """
    return prose_and_hidden(text).text


def prose_and_hidden(text: str) -> Prose:
    """[`prose`] of a text, and the words in what was left out that belong to no markup.

    These are words of three and more ASCII letters in formulas, inline code, links and tags, unknown LaTeX commands,
    and words whose letters stand apart, each once. Of a block of code none are returned, unless a quarter of its words
    are those that hold sentences together: then it is prose.

    Args:
        text (`str`): any text.

    Returns:
        [`Prose`]: prose and hidden words.

    Example:

    ```python
    >>> prose_and_hidden(r"So $area=\\sin x$ and n-e-x-t `we`, `need`").hidden
    ['need', 'area', 'next']

    ```
    """
    dropped: list[str] = []
    if not text.isascii():
        text = INVISIBLE.sub("", text)
    if "`" in text or "[asy]" in text:
        text = _without_code(text, dropped)
    if "://" in text or "www." in text:
        text = _without_urls(text, dropped)
    if "<" in text:
        text = TAG.sub(lambda match: _without_tag(match[0], dropped), text)
    if "$" in text or "\\" in text:
        text = _without_formulas(text, dropped)
    dropped += _spelled(text)
    return Prose(text, _words_in(dropped) if dropped else [])


def reasoning(text: str) -> str:
    """Everything but what follows the last `</think>`, up to another `<think>`; all of a text without these tags.

    Example:

    ```python
    >>> reasoning("<think>two and two</think>4")
    'two and two'

    ```
    """
    before, closed, after = text.rpartition(THINK_CLOSE)
    # what stands before the opening tag is reasoning too, and so is a last block that is never closed: they would be
    # places to hide otherwise; and two blocks are two sentences at least
    blocks = [*before.split(THINK_OPEN), *after.split(THINK_OPEN)[1:]] if closed else text.split(THINK_OPEN)
    return "\n".join(block for block in blocks if block)
