"""Split long texts into messages that Slack accepts."""

from __future__ import annotations

import re
from itertools import takewhile

from connector.formatting.markdown import FENCE

PIECE_CHARS = 3900
_OPENING, _CLOSING = f"{FENCE}\n", f"\n{FENCE}"
_QUOTE = "> "
_BEGINNING, _ENDING = re.compile(rf"{FENCE}\s*\Z"), re.compile(rf"\s*{FENCE}")
_START, _WITHIN = "\x01", "\x00"
_ATOM = re.compile(rf"{FENCE}|&#?\w{{1,8}};")
_WHOLE = re.compile(rf"{FENCE}.*?(?:{FENCE}|\Z)|<[^<>\n]*>|{_ATOM.pattern}", re.DOTALL)
# A line that introduces the next paragraph: a heading, or a line that ends with a colon.
_ANNOUNCES = re.compile(r"^(?:\*[^\n]*\*|[^\n]*:)\n\n", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n\n")
# Preferred cuts, best first: paragraphs; lines that begin an item or the like; lines; words.
_SEPARATIONS = (_PARAGRAPH, re.compile(r"(?<!:)\n(?=[^\s`])"), re.compile(r"\n"), re.compile(r" "))

# The end of a sentence with its closing marks, of a line, or of a code block.
_END = re.compile(r"[.!?…:][\"')\]*_~`”\u2019»]*(?=\s|\Z)|[。！？]|(?<=\S)[ \t]*\n|\x00(?!\x00)")  # noqa: RUF001 - of Japanese
# Text without such an end: a code block (which is one itself); a heading, the sign or number of a list item; an
# abbreviation or initial; and whole markup: a code span, an escaped character, an address, a link or other brackets.
_WITHOUT_END = re.compile(
    rf"(?s:{FENCE}.*?{FENCE})"
    r"|(?P<line>^[ ]{0,3}\#{1,6}(?:[ \t].*)?$|^[ \t>+*-]+$|^(?:[ \t>+-]|\*[ \t])*\d+[.)])"
    r"|\b(?:[^\W\d_]|Dr|Mr|Mrs|Ms|Prof|St|vs|cf|ca|approx|Fig)\."
    r"|(?<!`)(`{1,2})(?!`)[^\n]{1,500}?(?<!`)\2(?!`)|\\[^\w\s]|<[^<>\s]+>|\[[^\[\]]{0,500}\](?:\([^()\n]*\))?(?!\()",
    re.MULTILINE,
)
_ROW = re.compile(r"\s*\||.*\s\|\s")
# Of a table: its header, the line below it, and a row.
_LEAST_ROWS = 3
_OPENING_SIGN = re.compile(r"`|\[|<(?=[A-Za-z/!@#])")
_EMPHASIS = re.compile(r"\*+|~~|(?<![^\W_])_+|_+(?![^\W_])")

# Slack recognizes markup only at word boundaries.
_MARK = re.compile(r"[*_~`]")
_OPENS, _CLOSES = re.compile(r"(?<![^\W_]).(?=\S)"), re.compile(r"(?<=\S).(?![^\W_])")
_CODE = "`"
_SIGNS = re.compile(rf"(?:{_QUOTE})?[*_~`]{{0,4}}")
# How far to search for the end of bold text or the like.
_MARKED_CHARS = 20_000


def complete_sentences(markdown: str) -> str:
    """Return the beginning of a cut Markdown text, up to the last end of a sentence or line outside of any markup.

    Blank: there is none. No heading ends it.
    """
    if markdown.count(FENCE) % 2:
        markdown = markdown[: markdown.rindex(FENCE)]
    masked = _WITHOUT_END.sub(_without_end, markdown)
    ends = [end.end() for end in _END.finditer(masked)]
    while ends:
        at = ends.pop()
        begin = masked.rfind("\n\n", 0, at) + 1
        if (unclosed := _unclosed(masked[begin:at])) is None:
            return markdown[:at].rstrip()
        while ends and ends[-1] > begin + unclosed:
            ends.pop()
    return ""


def _without_end(text: re.Match[str]) -> str:
    return (_WITHIN if text[0].startswith(FENCE) else " " if text["line"] else "x") * len(text[0])


def _unclosed(paragraph: str) -> int | None:
    """Return where the markup begins that is open at the end of a masked paragraph."""
    rows = list(takewhile(_ROW.match, reversed(paragraph.splitlines())))
    if rows and (len(rows) < _LEAST_ROWS or not paragraph.endswith("\n")):
        return paragraph.rstrip("\n").rfind("\n") + 1
    sign = _OPENING_SIGN.search(paragraph)
    unclosed = [(sign[0], sign.start())] if sign else []
    for found in _EMPHASIS.finditer(paragraph):
        mark, closes = found[0], bool(paragraph[: found.start()][-1:].strip())
        while closes and unclosed and mark and mark.startswith(unclosed[-1][0]):
            mark = mark.removeprefix(unclosed.pop()[0])
        if mark and (closes or paragraph[found.end() : found.end() + 1].strip()):
            unclosed.append((mark, found.start()))
    return min((at for _, at in unclosed), default=None)


def pieces(text: str, limit: int = PIECE_CHARS) -> list[str]:
    """Split a text into messages of at most `limit` characters (40 or more).

    Cuts go between paragraphs (not after a heading), else list items, lines or words, if the piece is then at least
    half full. An escaped character, a link or a code block is only cut if it is longer than a piece. A cut code block
    loses only the line end at the cut; code blocks, bold text and the like are closed there and reopened after it.
    """
    out: list[str] = []
    while len(text) > limit:
        piece, text = _first_piece(text, limit - len(_CLOSING))
        out.append(piece)
    return [piece.strip("\n") for piece in [*out, text] if piece.strip()]


def _first_piece(text: str, room: int) -> tuple[str, str]:
    """Return a piece of at most `room` characters plus a closing fence, and the text after it."""
    at, separation = _cut(text, room)
    piece = text[:at]
    if piece.count(FENCE) % 2 == 0:
        rest = text[at + len(separation) :]
        if "\n" in separation:
            return piece, rest
        start = text.rfind("\n", 0, at) + 1
        piece, rest = _marked(piece, rest, _open_marks(text[start : at + _MARKED_CHARS], at - start, room))
        return piece, f"{_QUOTE}{rest}" if text.startswith(_QUOTE, start) else rest
    rest = text[at + separation[:1].count("\n") :]
    if begun := _BEGINNING.search(piece):  # the piece ends right after the opening fence: move it to the next piece
        return piece[: begun.start()], f"{_OPENING}{rest}"
    if ended := _ENDING.match(rest):
        return f"{piece}{_CLOSING}", rest[ended.end() :]
    return f"{piece}{_CLOSING}", f"{_OPENING}{rest}"


def _marked(piece: str, rest: str, marks: list[str]) -> tuple[str, str]:
    """Close marks at the end of a piece and reopen them after it, unless that creates or breaks a fence."""
    if not marks:
        return piece, rest
    ended = f"{piece.rstrip()}{''.join(reversed(marks))}"
    begun = f"{''.join(marks)}{rest.lstrip(' ')}"
    is_fence = ended.count(FENCE) != piece.count(FENCE) or begun.count(FENCE) != rest.count(FENCE)
    return (piece, rest) if is_fence else (ended, begun)


def _open_marks(text: str, at: int, room: int) -> list[str]:
    """Return the marks that are open at `at` in the first line of a text and closed later in that line."""
    line = _masked(text.split("\n", 1)[0], room)
    open_marks: list[str] = []
    for found in _MARK.finditer(line, 0, at):
        mark = found[0]
        if mark in open_marks and _CLOSES.match(line, found.start()):
            del open_marks[open_marks.index(mark) :]
        elif mark not in open_marks and _CODE not in open_marks and _OPENS.match(line, found.start()):
            open_marks.append(mark)
    closed = {found[0] for found in _MARK.finditer(line, at) if _CLOSES.match(line, found.start())}
    return [mark for mark in open_marks if mark in closed]


def _cut(text: str, room: int) -> tuple[int, str]:
    """Return where to cut a text that is too long, and the separator at that place."""
    # Twice the room contains all of every unit that begins inside the room and fits.
    masked = _masked(text[: 2 * room + 1], room)
    bound = _ANNOUNCES.sub(_mask, masked)
    lowest = _lowest(text)
    for least in (room // 2, lowest):
        for separation, where in ((_PARAGRAPH, bound), *((each, masked) for each in _SEPARATIONS)):
            if found := [each for each in separation.finditer(where, least, room + 3) if each.start() <= room]:
                return found[-1].start(), found[-1][0]
    at = room
    while at > lowest and masked[at] == _WITHIN:
        at -= 1
    return at, ""


def _lowest(text: str) -> int:
    """Return the earliest cut: past any reopened fence or marks, so that every cut makes progress."""
    signs = _SIGNS.match(text)
    return 1 + max(len(_OPENING) if text.startswith(_OPENING) else 0, signs.end() if signs else 0)


def _masked(text: str, room: int) -> str:
    """Replace units that must not be cut by placeholder characters; the length stays the same."""

    def mask_if_it_fits(match: re.Match[str]) -> str:
        return _mask(match) if len(match[0]) <= room else _ATOM.sub(_mask, match[0])

    return _WHOLE.sub(mask_if_it_fits, text.replace(_WITHIN, _START))


def _mask(match: re.Match[str]) -> str:
    return _START + _WITHIN * (len(match[0]) - 1)
