"""Templates of instructions: rendering, errors and limits."""

from pathlib import Path

import pytest

from orchestrator_interactive.registries.templates import (
    BrokenTemplate,
    ForbiddenTemplate,
    TemplateError,
    TemplateManager,
    TemplateTooLarge,
    UndefinedVariable,
    UnknownTemplate,
)

GIVEN = {"name": "Ana", "tools": ["look", "dig"], "limits": {"calls": 3, "note": "<none> & ü"}}


def rendered(template: str) -> str:
    return TemplateManager().render(template, GIVEN)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "rules.j2").write_text("Be kind to {{ name }}.\n")
    (tmp_path / "base.jinja").write_text("You are {% block who %}somebody{% endblock %}.")
    (tmp_path / "helper.jinja").write_text("{% extends 'base.jinja' %}{% block who %}a helper{% endblock %}")
    (tmp_path / "hello.md").write_text("Hello {{ name }}!\n{% include 'parts/rules.j2' %}")
    (tmp_path / "broken.txt").write_text("fine\n{% if %}\n")
    (tmp_path / "notes.csv").write_text("no template")
    return tmp_path


def test_a_text_is_rendered_with_its_variables_once() -> None:
    template = (
        "You help {{ name }}.\n{% for tool in tools %}\n- {{ loop.index }}/{{ loop.length }} {{ tool }}\n{% endfor %}"
    )
    assert rendered(template) == "You help Ana.\n- 1/2 look\n- 2/2 dig\n"
    assert TemplateManager().render("{{ said }}", {"said": "{{ 7 * 7 }}"}) == "{{ 7 * 7 }}"


def test_values_are_not_escaped() -> None:
    assert rendered("{{ limits.note }} {{ limits | tojson }}") == ('<none> & ü {"calls": 3, "note": "<none> & ü"}')


def test_a_name_selects_a_template_of_the_folder(folder: Path) -> None:
    templates = TemplateManager(folder)
    assert templates.render("hello.md", GIVEN) == "Hello Ana!\nBe kind to Ana."
    assert templates.render("helper.jinja") == "You are a helper."
    assert templates.render("{% include 'parts/rules.j2' %}", GIVEN) == "Be kind to Ana."
    assert templates.names() == ["base.jinja", "broken.txt", "hello.md", "helper.jinja", "parts/rules.j2"]


def test_a_text_that_mentions_a_file_is_a_text(folder: Path) -> None:
    assert TemplateManager(folder).render("Read hello.md") == "Read hello.md"
    assert TemplateManager(folder).render("{{name}}.md", GIVEN) == "Ana.md"
    assert TemplateManager().names() == []


def test_a_changed_file_is_loaded_again(folder: Path) -> None:
    templates = TemplateManager(folder)
    assert templates.render("base.jinja") == "You are somebody."
    (folder / "base.jinja").write_text("You are else.")
    assert templates.render("base.jinja") == "You are else."


@pytest.mark.parametrize("name", ["helo.md", "../secret.txt", "parts/../hello.md", "/etc/passwd.txt"])
def test_the_error_of_an_unknown_name_lists_the_templates(folder: Path, name: str) -> None:
    (folder.parent / "secret.txt").write_text("secret")
    with pytest.raises(UnknownTemplate, match=r"There is no template .* there are: base\.jinja, .*hello\.md"):
        TemplateManager(folder).render(name)
    with pytest.raises(UnknownTemplate, match="there are: base"):
        TemplateManager(folder).check(name)
    with pytest.raises(UnknownTemplate, match="no template folder is set"):
        TemplateManager().render(name)


def test_the_error_of_a_broken_template_names_the_line(folder: Path) -> None:
    with pytest.raises(BrokenTemplate, match="The template cannot be read, line 3: "):
        TemplateManager().check("a\nb\n{% endfor %}")
    with pytest.raises(BrokenTemplate, match=r"The template broken\.txt cannot be read, line 2: "):
        TemplateManager(folder).check("broken.txt")
    with pytest.raises(BrokenTemplate, match=r"line 2 of broken\.txt: "):
        TemplateManager(folder).render("{% include 'broken.txt' %}")
    TemplateManager().check("{{ nobody_knows }}")


@pytest.mark.parametrize("template", ["\n\n{{ nme }}", "\n\n{{ limits.cals }}", "\n\n{{ tools[7] }}"])
def test_the_error_of_an_undefined_variable_names_the_line_and_the_variables(template: str) -> None:
    with pytest.raises(UndefinedVariable, match=r"fails in line 3: .* It was given: limits, name, tools\."):
        rendered(template)
    assert rendered("{{ nme | default('you') }}{% if nme is defined %}!{% endif %}") == "you"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ tools.append('x') }}",
        "{{ limits.update({}) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ ('' | attr('__class__')).__mro__ }}",
        "{% set s = 'a' * 90000 %}{{ s.translate({97: s}) }}",
    ],
)
def test_a_template_is_sandboxed(template: str) -> None:
    with pytest.raises(ForbiddenTemplate, match="may not do this in line 1"):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(90000) %}{% endfor %}",
        "{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}",
        "{% for i in range(999) %}{{ 'x' * 999 }}{% endfor %}",
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * [1] }}",
        "{{ 2 ** 1000000000 }}",
        "{% set n = namespace(x=9) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{{ 'x'.ljust(10**9) }}",
        "{{ 'x' | indent(10**9) }}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = [n.x, n.x] | join %}{% endfor %}",
        "{{ ('a' * 20000) | replace('a', 'b' * 20000) }}",
        "{{ ('a' * 20000).replace('a', 'b' * 20000) }}",
        "{{ ('\t' * 20000).expandtabs(90000) }}",
        "{{ ('b' * 90000).join(['a'] * 9000) }}",
        "{% set s = 'a' * 90000 %}{{ [[s] * 400] * 400 }}",
        "{% set s = 'a' * 90000 %}{{ ([s] * 2000) | tojson }}",
        "{{ (['a'] * 9000) | join('b' * 90000) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(40000) %}{% set x = range(99999) | map('string') | list %}{% endfor %}",
        "{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}",
    ],
)
def test_a_template_without_end_or_of_any_size_is_an_error(template: str) -> None:
    with pytest.raises(TemplateTooLarge):
        rendered(template)


def test_a_template_that_includes_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "again.md").write_text("{% include 'again.md' %}")
    with pytest.raises(TemplateTooLarge):
        TemplateManager(tmp_path).render("again.md")


@pytest.mark.parametrize(
    "template", ["\n{{ 1 / 0 }}", "\n{{ 'x' + 1 }}", "\n{{ name | round }}", "\n{{ tools | dictsort }}"]
)
def test_the_error_of_a_failing_expression_names_the_line(template: str) -> None:
    with pytest.raises(TemplateError, match="The template fails in line 2: "):
        rendered(template)


def test_a_binary_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "image.txt").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(TemplateError, match=r"The template image\.txt fails"):
        TemplateManager(tmp_path).render("image.txt")


def test_each_rendering_has_its_own_limits() -> None:
    templates = TemplateManager()
    for _ in range(5):
        assert templates.render("{% for i in range(20000) %}{% endfor %}done") == "done"
