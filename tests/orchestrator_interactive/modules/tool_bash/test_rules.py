"""Rules about commands: allowed, asked and denied commands; no spelling of a command evades a rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.modules.tool_bash.rules import CommandRule, evaluate

RULES = [
    CommandRule(command="git status", level="allow"),
    CommandRule(command="git log *", level="allow"),
    CommandRule(command="ls *", level="allow"),
    CommandRule(command="cat *", level="allow"),
    CommandRule(command="find *", level="allow"),
    *(
        CommandRule(command=f"{name} *", level="allow")
        for name in ("printf", "test", "[", "read", "let", "hash", "set")
    ),
    CommandRule(command="git push", level="ask"),
    CommandRule(command="rm", level="deny"),
]


def level(command: str) -> str | None:
    verdict = evaluate(command, RULES)
    return None if verdict is None else verdict.level


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git log --oneline -5",
        "ls",
        "ls -la src",
        'ls "a folder"',
        "ls 'a folder'",
        "git status && ls | cat",
        "git status; ls",
        "(ls)",
        "{ ls; }",
        "! ls",
        "ls 2>&1",
        "ls > /dev/null",
        "cat < notes.md",
        "if ls; then cat x; else git status; fi",
        "ls # rm x",
        "ls \\\n -l",
        "bash -c 'ls -l'",
        "time ls",
        "command ls",
        "find . -name x",
        "cat <<E\nx\nE",
        "cat <<-E\n\tx\n\tE\nls",
        "cat <<'E'\n$x `y`\nE",
        "cat <<< 'a text'",
        "printf a",
        "test -f x",
    ],
)
def test_a_command_whose_parts_are_all_allowed_is_allowed(command: str) -> None:
    assert level(command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "rm",
        "/bin/rm x",
        "./rm x",
        "ls; rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | rm x",
        "ls & rm x",
        "ls\nrm x",
        "(rm x)",
        "{ rm x; }",
        "! rm x",
        "ls $(rm x)",
        "ls `rm x`",
        'ls "$(rm x)"',
        "ls <(rm x)",
        "cat <<E\n$(rm x)\nE",
        "if true; then rm x; fi",
        "for i in a; do rm $i; done",
        "while rm x; do ls; done",
        "case a in a) rm x;; esac",
        "f() { rm x; }; f",
        "r\\m x",
        "\\rm x",
        "'rm' x",
        '"rm" x',
        "r'm' x",
        'r""m x',
        "r\\\nm x",
        "bash -c 'rm x'",
        "sh -c 'ls; rm x'",
        "bash -c \"bash -c 'rm x'\"",
        "eval rm x",
        "eval 'rm x'",
        "command rm x",
        "builtin rm x",
        "exec rm x",
        "nohup rm x",
        "time rm x",
        "env rm x",
        "env A=1 rm x",
        "timeout 5 rm x",
        "nice -n 5 rm x",
        "sudo rm x",
        "sudo -u a rm x",
        "xargs rm",
        "echo x | xargs -n1 rm",
        "find . -exec rm {} +",
        "A=1 rm x",
        "rm x > /dev/null",
        "> /dev/null rm x",
        "coproc rm x",
        "ls ${x:-$(rm y)}",
        "ls $((`rm x`))",
        "[[ -n $(rm x) ]]",
        "export A=$(rm x)",
        "cat <<< $(rm x)",
        "ls & rm x &",
        "time bash -c 'rm x'",
        "busybox rm x",
        # Texts that bash expands or calculates, although they are quoted.
        "[[ 'a[$(rm x)]' -eq 0 ]]; ls",
        '[[ "a[\\$(rm x)]" -eq 0 ]]; ls',
        "[[ -v 'a[`rm x`]' ]]; ls",
        "[ -v 'a[$(rm x)]' ]; ls",
        "'[' -v 'a[$(rm x)]' ]",
        "test -v 'a[$(rm x)]'",
        "! [ -v 'a[$(rm x)]' ]",
        "if [[ 'a[$(rm x)]' -eq 0 ]]; then ls; fi",
        "until [[ 'a[$(rm x)]' -eq 1 ]]; do ls; done",
        "((a['$(rm x)'])); ls",
        "! ((ls '$(rm x)')); ls",
        "ls $((a['$(rm x)']))",
        "ls ${a[$(rm x)]}",
        "ls ${a['$(rm x)']}",
        "let 'a[$(rm x)]'",
        "builtin let 'a[$(rm x)]'",
        "printf -v 'a[$(rm x)]' y",
        "read 'a[$(rm x)]' < y",
        "declare 'a[$(rm x)]=1'; ls",
        "unset 'a[$(rm x)]'; ls",
        "a['$(rm x)']=1; ls",
        "a=(y $(rm x)); ls",
        "mapfile -C 'rm x' -c 1 a < y",
        "ls <<E\n`rm x`\nE",
        "ls <<E\n \t`rm x`\nE",
        "ls <<-E\n\t$(rm x)\n\tE",
        "ls <<E && rm x\ny\nE",
        "ls <<E | rm x\ny\nE",
        "ls <<A <<B\ny\nA\n`rm x`\nB",
        "ls <<'A B'\ny\nA B\nrm x",
        "ls <<EF\nE\\\nF\nrm x\nEF",
        "cat <<< `rm x`",
        "cat <<< \"$[a['$(rm x)']]\"",
        "cat < <(rm x)",
        "ls > >(rm x)",
        "coproc X { rm x; }",
        "select a in b; do rm x; done",
        "case a in $(rm x)) ls;; esac",
        "for ((i = 0; i < 1; i++)); do rm x; done",
        "time if ls; then rm x; fi",
        # Commands in a word of another one.
        "trap 'rm x' EXIT",
        "trap 'rm;ls' EXIT",
        "env bash -c 'rm x'",
        "timeout 5 bash -c 'rm x'",
        "xargs sh -c 'rm x'",
        "find . -exec sh -c 'rm x' \\;",
        "su -c 'rm x'",
        "jobs -x rm x",
        "time " * 9000 + "rm x",
    ],
)
def test_a_denied_command_is_denied_however_it_is_written(command: str) -> None:
    assert level(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        # The command is known only later.
        "$X",
        "$(echo rm) x",
        "`echo rm` x",
        "${X} y",
        "l$X",
        "ls $X",
        'ls "$X"',
        "ls *",
        "ls ?",
        "ls [a]",
        "ls {a,b}",
        "{r,}m x",
        "ls ~",
        "$'rm' x",
        "$'\\x72m' x",
        "ls $'a'",
        "X=rm; $X y",
        "A=1 ls",
        "PATH=. ls",
        "LD_PRELOAD=x ls",
        "export PATH=.; ls",
        "ls() { cat x; }; ls",
        "function ls { cat x; }; ls",
        "for i in a; do ls $i; done",
        "alias ls=cat; ls",
        "trap ls EXIT",
        "source x",
        ". ./x",
        "bash x.sh",
        "bash",
        "bash -xc 'ls'",
        "sh -s < x",
        "env -i ls",
        "timeout -k 1 2 ls",
        "exec -a x ls",
        "xargs ls",
        "find . -exec ls {} +",
        "find . -okdir ls ;",
        # It changes what commands or variables mean.
        "for PATH in /workspace/evil; do ls; done",
        "select PATH in evil; do ls; done",
        "time for PATH in evil; do ls; done",
        "((PATH = 1)); ls",
        "ls; ((a))",
        "! ((a))",
        "printf -v PATH evil; ls",
        "printf -vPATH evil; ls",
        "builtin printf -v PATH evil",
        "read PATH < x; ls",
        "hash -p ./evil ls; ls",
        "set -k; ls LD_PRELOAD=x",
        "declare PATH=evil; ls",
        "unset PATH; ls",
        "ls {PATH}>/dev/null; ls",
        "wait -p PATH",
        "getopts a PATH",
        "case a in a) ls;; esac",
        "a=(x); ls",
        "coproc ls",
        # Where a heredoc ends, or its text, is uncertain.
        "ls <<E\n$x\nE",
        "ls <<E\n${a[1]}\nE",
        "ls <<E\n\\\nE",
        "ls <<$'E'\nx\nE",
        "ls <<E'F'\nx\nEF",
        "ls <<\\E\nx\nE",
        "[ -f x ]",
        "[[ x = y ]] && ls",
        "cat <<< $[1 + 1]",
        "cat <<< ~",
        "cat < *",
        "cat < /dev/tcp/example.org/80",
        "time " * 9000 + "ls",
        # It writes.
        "ls > x",
        "ls >> x",
        "ls >| x",
        "ls &> x",
        "ls > $X",
        "> x",
        # Letters that look like others, and control characters.
        "l\u0455",
        "ls\u00a0-l",
        "ls \u202ex",
        "ls \x1b[2K",
        "ls \x00x",
        "ls\r-l",
        # It cannot be parsed.
        "ls (",
        "ls && ",
        "if ls",
        'ls "',
        "ls 'x",
        "cat <<E\nx",
        # A word of a denied command.
        "ls rm x",
        "git log rm",
        # Asked for by a rule.
        "git push",
        "git push --force",
        "git status && git push",
        "bash -c 'git push'",
        "command git push",
        "ls " + "(" * 300,
        "bash -c " * 10 + "ls",
    ],
)
def test_what_is_unclear_or_to_be_asked_is_never_allowed_nor_by_an_earlier_always(command: str) -> None:
    verdict = evaluate(command, RULES)
    assert verdict is not None
    assert verdict.level in {"ask", "deny"}
    assert verdict.is_final


@pytest.mark.parametrize("command", ["git", "git status -s", "git diff", "/usr/bin/git status", "make", "ls; make", ""])
def test_other_commands_are_left_to_the_policy(command: str) -> None:
    assert level(command) is None


def test_without_rules_nothing_is_decided() -> None:
    assert evaluate("rm x", ()) is None


@given(st.text(alphabet="rmls -;|&$(){}'\"\\\n<>`=x*#", max_size=40))
def test_any_text_is_judged_and_a_command_that_bash_could_read_as_rm_is_not_allowed(text: str) -> None:
    assert level(f"{text}\nrm x") != "allow"


@pytest.mark.parametrize("command", ["*", "git * status", "git sta*", " "])
def test_a_rule_that_is_no_words_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="words of a command"):
        CommandRule(command=command, level="allow")
