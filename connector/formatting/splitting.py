"""Texts cut into pieces of a size that Slack takes."""

from __future__ import annotations

import re

from connector.formatting.markdown import FENCE

PIECE_CHARS = 3900
_OPENING, _CLOSING = f"{FENCE}\n", f"\n{FENCE}"
_QUOTE = "> "
_BEGINNING, _ENDING = re.compile(rf"{FENCE}\s*\Z"), re.compile(rf"\s*{FENCE}")
_START, _WITHIN = "\x01", "\x00"
_ATOM = re.compile(rf"{FENCE}|&#?\w{{1,8}};")
_WHOLE = re.compile(rf"{FENCE}.*?(?:{FENCE}|\Z)|<[^<>\n]*>|{_ATOM.pattern}", re.DOTALL)
# What announces the next paragraph: a heading, or a line with a colon at its end.
_ANNOUNCES = re.compile(r"^(?:\*[^\n]*\*|[^\n]*:)\n\n", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n\n")
# After paragraphs: where something begins, as an item of a list does with what belongs to it; lines; words.
_SEPARATIONS = (_PARAGRAPH, re.compile(r"(?<!:)\n(?=[^\s`])"), re.compile(r"\n"), re.compile(r" "))

# Slack takes a mark for one only between words.
_MARK = re.compile(r"[*_~`]")
_OPENS, _CLOSES = re.compile(r"(?<![^\W_]).(?=\S)"), re.compile(r"(?<=\S).(?![^\W_])")
_CODE = "`"
_SIGNS = re.compile(rf"(?:{_QUOTE})?[*_~`]{{0,4}}")
# So far is looked for the end of what is bold, or the like.
_MARKED_CHARS = 20_000


def pieces(text: str, limit: int = PIECE_CHARS) -> list[str]:
    """Cut a text into messages of at most `limit` characters (40 or more).

    A cut goes between paragraphs, but not under a heading, else between the items of a list, lines, words, as long as
    the piece gets half full; never through an escaped character, a link or a code block, unless that is longer than a
    piece. A code block is then closed at the cut and opened again after it, with every character of it but the line's
    end at the cut, and so is what is bold or the like; anything else is cut wherever the piece is full.
    """
    out: list[str] = []
    while len(text) > limit:
        piece, text = _first_piece(text, limit - len(_CLOSING))
        out.append(piece)
    return [piece.strip("\n") for piece in [*out, text] if piece.strip()]


def _first_piece(text: str, room: int) -> tuple[str, str]:
    """A piece of at most `room` characters, or `room` and a closing fence; and the text after it."""
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
    if begun := _BEGINNING.search(piece):  # nothing of the code is in this piece: it begins in the next one
        return piece[: begun.start()], f"{_OPENING}{rest}"
    if ended := _ENDING.match(rest):
        return f"{piece}{_CLOSING}", rest[ended.end() :]
    return f"{piece}{_CLOSING}", f"{_OPENING}{rest}"


def _marked(piece: str, rest: str, marks: list[str]) -> tuple[str, str]:
    """What is marked is closed at the end of a piece and opened again after it, where no fence comes of it."""
    if not marks:
        return piece, rest
    ended = f"{piece.rstrip()}{''.join(reversed(marks))}"
    begun = f"{''.join(marks)}{rest.lstrip(' ')}"
    is_fence = ended.count(FENCE) != piece.count(FENCE) or begun.count(FENCE) != rest.count(FENCE)
    return (piece, rest) if is_fence else (ended, begun)


def _open_marks(text: str, at: int, room: int) -> list[str]:
    """The marks that are open at this place in the line that a text begins with, and are closed in it later on."""
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
    """Where to cut a text that is too long, and what separates the parts there."""
    # Twice the room shows the whole of everything that begins inside and fits.
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
    """The earliest cut: after a sign that is set again it takes more than that, so that every cut comes forward."""
    signs = _SIGNS.match(text)
    return 1 + max(len(_OPENING) if text.startswith(_OPENING) else 0, signs.end() if signs else 0)


def _masked(text: str, room: int) -> str:
    """The text, as long as before, with marks in the place of what is to stay in one piece."""

    def mask_if_it_fits(match: re.Match[str]) -> str:
        return _mask(match) if len(match[0]) <= room else _ATOM.sub(_mask, match[0])

    return _WHOLE.sub(mask_if_it_fits, text.replace(_WITHIN, _START))


def _mask(match: re.Match[str]) -> str:
    return _START + _WITHIN * (len(match[0]) - 1)
