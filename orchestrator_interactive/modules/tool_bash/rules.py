"""Rules about commands. A command is parsed as bash parses it; text patterns would be evaded by quoting."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from orchestrator_interactive.config import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node, Parser

Level = Literal["allow", "ask", "deny"]

# Parts of a command without an effect of their own: their named children are examined.
_TRANSPARENT = frozenset({
    "program", "list", "pipeline", "negated_command", "subshell", "compound_statement", "redirected_statement",
    "if_statement", "elif_clause", "else_clause", "while_statement", "do_group", "command_name", "comment",
    "heredoc_redirect", "heredoc_body", "heredoc_start", "heredoc_end", "heredoc_content", "word", "string",
    "string_content", "raw_string", "number", "concatenation", "file_descriptor", "ansi_c_string",
    "herestring_redirect",
})  # fmt: skip
# Parts whose text bash expands or calculates, quoted or not: `[[ 'a[$(rm x)]' -eq 0 ]]` runs `rm`.
_CALCULATED = frozenset({
    "test_command", "arithmetic_expansion", "c_style_for_statement", "subscript", "expansion", "declaration_command",
    "unset_command",
})  # fmt: skip
# Builtins that set variables or names of commands, or calculate their words.
_CHANGES = frozenset({
    "let", "read", "mapfile", "readarray", "getopts", "wait", "declare", "typeset", "local", "readonly", "export",
    "unset", "set", "shopt", "hash", "enable", "bind", "complete", "compgen", "fc",
})  # fmt: skip
# Commands that begin another one, which is given by their further words.
_WRAPPERS = frozenset({
    "builtin", "command", "exec", "nohup", "setsid", "time", "timeout", "nice", "ionice", "stdbuf", "env", "sudo",
    "doas", "xargs", "chroot", "unshare", "nsenter", "watch", "parallel", "busybox", "flock", "script", "strace",
    "ltrace", "su", "runuser", "chrt", "taskset", "ssh", "eval", "source", ".", "trap", "alias", "coproc",
    "bash", "sh", "dash", "zsh", "ksh", "fish", "rbash", "jobs",
    # The parser takes them for commands after `time`.
    "if", "then", "elif", "else", "while", "until", "do", "for", "select", "case", "function",
})  # fmt: skip
# Wrappers whose further words are the command, unless they begin with an option.
_PLAIN_WRAPPERS = frozenset({"builtin", "command", "exec", "nohup", "setsid", "time"})
_SHELLS = frozenset({"bash", "sh", "dash"})
# Options of `find` and `fd` that begin a command.
_EXECUTES = ("-exec", "-ok", "--exec", "-x", "-X")
_QUOTED = "\\'\"$`*?[{~!#"
_PLAIN_WORD = re.compile(r"[\w./=:@%+,-]*")
_DELIMITER = re.compile(r"(['\"]?)\w+\1")
_QUOTES = re.compile(r"[\\'\"]")
_MOST_LEVELS = 5
_DYNAMIC = "it has parts whose value is known only when it runs"


class CommandRule(Options):
    """A rule: `command` are its words; a last `*` stands for any further words."""

    command: str = Field(min_length=1)
    level: Level

    @field_validator("command")
    @classmethod
    def _has_words(cls, command: str) -> str:
        words = command.split()
        if not words or words[0] == "*" or "*" in "".join(words[:-1]) or ("*" in words[-1] and words[-1] != "*"):
            raise ValueError(f"{command!r} must be the words of a command; only the last one may be `*`")
        return " ".join(words)

    @property
    def words(self) -> list[str]:
        return self.command.removesuffix(" *").split()

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether the rule is about a command. One that does not allow it is about any further words, too."""
        if self.level != "allow" or self.command.endswith(" *"):
            return list(words[: len(self.words)]) == self.words
        return list(words) == self.words


@dataclass(frozen=True, slots=True)
class Verdict:
    """What applies to a command, and why. `is_final`: no earlier “Always allow” of a person applies to it."""

    level: Level
    reason: str
    is_final: bool = False


def evaluate(command: str, rules: Sequence[CommandRule]) -> Verdict | None:
    """Return the decision of the rules about a command; `None`: they have none.

    It is denied if any part of it is denied, and allowed only if every part of it is known and allowed.
    """
    if not rules:
        return None
    found = _Examination(rules)
    for variant in dict.fromkeys((command, command.replace("\\\n", ""))):  # bash joins lines first
        found.examine(variant)
    if not found.commands and command.strip():
        found.unclear = found.unclear or "it has no command"
    has_denials = any(rule.level == "deny" for rule in rules)
    if found.denied:
        return Verdict("deny", f"a rule denies `{found.denied}`", is_final=True)
    if found.unclear:
        return Verdict("ask", found.unclear, is_final=has_denials)
    if found.asked:
        return Verdict("ask", f"a rule asks before `{found.asked}`", is_final=True)
    if found.is_allowed and found.commands:
        return Verdict("allow", f"rules allow {', '.join(f'`{each}`' for each in dict.fromkeys(found.commands))}")
    return None


class _Examination:
    def __init__(self, rules: Sequence[CommandRule]) -> None:
        self._rules = rules
        self.denied = self.asked = self.unclear = ""
        self.is_allowed = True
        self.commands: list[str] = []

    def examine(self, command: str, level: int = 0) -> None:
        if level > _MOST_LEVELS:
            self.unclear = self.unclear or _DYNAMIC
            return
        if any(ord(char) < 32 and char not in "\n\t" for char in command):
            self.unclear = self.unclear or "it has control characters"
        tree = _parser().parse(command.encode(errors="replace"))
        if tree.root_node.has_error:
            self.unclear = self.unclear or "it cannot be parsed"
        self._walk(tree.root_node, level)

    def _walk(self, top: Node, level: int) -> None:
        waiting = [(top, False)]
        while waiting:
            node, is_expanded = waiting.pop()
            if node.type == "command":
                self._command(node, level)
            elif node.type in {"file_redirect", "herestring_redirect"}:
                self._redirect(node)
            elif not is_expanded and _is_expanded(node):
                is_expanded = True
                self._expanded(_text(node), level)
            elif node.type not in _TRANSPARENT:
                self.unclear = self.unclear or _DYNAMIC
            waiting += [(child, is_expanded) for child in node.named_children]

    def _expanded(self, text: str, level: int) -> None:
        """Examine a text whose substitutions run although it is quoted: it is unclear, and perhaps denied."""
        self.unclear = self.unclear or _DYNAMIC
        if "$(" in text or "`" in text:
            self.examine(f': "{_QUOTES.sub("", text)}"', level + 1)

    def _redirect(self, node: Node) -> None:
        if node.type == "herestring_redirect":
            if any(_static(child) is None for child in node.named_children):
                self.unclear = self.unclear or _DYNAMIC
            return
        sign = next((child.type for child in node.children if not child.is_named), "")
        target = node.child_by_field_name("destination")
        word = None if target is None else _static(target)
        if sign == "<" and (word is None or word.startswith(("/dev/tcp/", "/dev/udp/"))):
            self.unclear = self.unclear or f"it reads from a place that is known only when it runs: {_text(node)}"
        if sign in {">&", "<&"} and word is not None and (word.isdigit() or word == "-"):
            return
        if sign != "<" and word != "/dev/null":
            self.unclear = self.unclear or f"it writes to a file: {_text(node)}"

    def _command(self, node: Node, level: int) -> None:
        words: list[str | None] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.unclear = self.unclear or _DYNAMIC
            elif child.type not in {"file_redirect", "herestring_redirect", "heredoc_redirect", "comment"}:
                words.append(_static(child.named_children[0] if child.type == "command_name" else child))
        if None in words or not words:
            self.unclear = self.unclear or _DYNAMIC
        self._judge([word or "" for word in words], level)

    def _judge(self, words: list[str], level: int) -> None:
        shown, name = " ".join(words), _base(words[0]) if words else ""
        self.commands.append(shown)
        if level > _MOST_LEVELS:
            self.unclear = self.unclear or _DYNAMIC
            return
        is_wrapper = name in _WRAPPERS or (name in {"find", "fd"} and any(each.startswith(_EXECUTES) for each in words))
        for begin in range(len(words)):
            named = [_base(words[begin]), *words[begin + 1 :]]
            if any(rule.level == "deny" and rule.matches(named) for rule in self._rules):
                if begin == 0 or is_wrapper:
                    self.denied = self.denied or shown
                else:  # perhaps only a word
                    self.unclear = self.unclear or f"it has the words of a denied command: {shown}"
        if is_wrapper and self._unwrapped(words, level):
            return
        if name in _CHANGES or _names_a_variable(words):
            self._expanded(shown, level)
            self._texts(words[1:], level)
        if any(rule.level == "ask" and rule.matches([name, *words[1:]]) for rule in self._rules):
            self.asked = self.asked or shown
        if not any(rule.level == "allow" and rule.matches(words) for rule in self._rules):
            self.is_allowed = False
            if any(rule.level == "deny" and rule.words[0] == name for rule in self._rules):
                self.unclear = self.unclear or f"a rule denies another form of `{name}`"

    def _unwrapped(self, words: list[str], level: int) -> bool:
        """Examine the command in a wrapper; return False if it is to be judged as a command of its own, too."""
        name, rest = _base(words[0]), words[1:]
        if name in _SHELLS and len(rest) == 2 and rest[0] == "-c":
            self.examine(rest[1], level + 1)
            return True
        if name == "eval" and rest:
            self.examine(" ".join(rest), level + 1)
            return True
        if name in _PLAIN_WRAPPERS and rest and not rest[0].startswith("-"):
            self._judge(rest, level + 1)
            return True
        self.unclear = self.unclear or f"`{name}` begins another command"
        self._texts(rest, level)  # such as `bash -xc '…'`
        return False

    def _texts(self, words: Sequence[str], level: int) -> None:
        """Examine words that may be commands of several words."""
        for each in words:
            if not _PLAIN_WORD.fullmatch(each):
                self.examine(each, level + 1)


def _names_a_variable(words: Sequence[str]) -> bool:
    if words[:1] == ["printf"]:
        return any(each.startswith("-v") for each in words[1:2])
    return bool(words) and words[0] in {"test", "["} and not {"-v", "-R"}.isdisjoint(words)


def _is_expanded(node: Node) -> bool:
    """Return whether bash expands or calculates the text of a part, or where the part ends is uncertain."""
    if node.type in {"subshell", "compound_statement"}:  # the parser takes `! ((…))` for subshells
        return (node.text or b"").startswith(b"((")
    if node.type != "heredoc_redirect":
        return node.type in _CALCULATED
    start = next((child for child in node.named_children if child.type == "heredoc_start"), None)
    delimiter = "" if start is None else _text(start)
    if start is None or not _DELIMITER.fullmatch(delimiter):
        return True
    following = (node.text or b"")[start.end_byte - node.start_byte :].decode(errors="replace")
    ends = [line for line in following.split("\n")[1:] if line.strip("\t") == delimiter.strip("'\"")]
    return len(ends) != 1 or (delimiter[0] not in "'\"" and not set(following).isdisjoint("$`\\"))


def _base(word: str) -> str:
    return word.rpartition("/")[2] or word


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _static(node: Node) -> str | None:
    """Return the value of a word; `None`: it is known only when the command runs."""
    text = _text(node)
    match node.type:
        case "word" | "number":
            unescaped = "".join(_unescaped(text))
            return unescaped if not set(text.replace("\\", "")) & set(_QUOTED) and text.isascii() else None
        case "raw_string":
            return text[1:-1]
        case "string":
            inner = text[1:-1]
            return inner if not set(inner) & set('$`\\!"') and inner.isascii() else None
        case "concatenation":
            parts = [_static(child) for child in node.named_children]
            whole = sum(len(child.text or b"") for child in node.named_children) == len(node.text or b"")
            return "".join(part or "" for part in parts) if whole and None not in parts else None
    return None


def _unescaped(text: str) -> Iterator[str]:
    characters = iter(text)
    for character in characters:
        if character != "\\":
            yield character
        elif (following := next(characters, "")) != "\n":
            yield following


@cache
def _parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 - of the extra `shell`
    from tree_sitter import Language, Parser  # noqa: PLC0415

    language: Any = tree_sitter_bash.language()
    return Parser(Language(language))
