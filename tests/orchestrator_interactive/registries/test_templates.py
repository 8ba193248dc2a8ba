"""Templates of instructions: rendering, errors and the sandbox."""

from pathlib import Path

import pytest

from orchestrator_interactive.registries.templates import TemplateError, TemplateManager

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
    with pytest.raises(TemplateError, match=r"There is no template .* there are: base\.jinja, .*hello\.md"):
        TemplateManager(folder).render(name)
    with pytest.raises(TemplateError, match="there are: base"):
        TemplateManager(folder).check(name)
    with pytest.raises(TemplateError, match="no template folder is set"):
        TemplateManager().render(name)


def test_the_error_of_a_broken_template_names_the_line(folder: Path) -> None:
    with pytest.raises(TemplateError, match="The template cannot be read, line 3: "):
        TemplateManager().check("a\nb\n{% endfor %}")
    with pytest.raises(TemplateError, match=r"The template broken\.txt cannot be read, line 2: "):
        TemplateManager(folder).check("broken.txt")
    with pytest.raises(TemplateError, match=r"line 2 of broken\.txt: "):
        TemplateManager(folder).render("{% include 'broken.txt' %}")
    TemplateManager().check("{{ nobody_knows }}")


@pytest.mark.parametrize("template", ["\n\n{{ nme }}", "\n\n{{ limits.cals }}", "\n\n{{ tools[7] }}"])
def test_the_error_of_an_undefined_variable_names_the_line_and_the_variables(template: str) -> None:
    with pytest.raises(TemplateError, match=r"fails in line 3: .* It was given: limits, name, tools\."):
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
        "{{ ('' | attr('__class__')).__mro__ }}",
    ],
)
def test_a_template_is_sandboxed(template: str) -> None:
    with pytest.raises(TemplateError, match="may not do this in line 1"):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(999) %}{{ 'x' * 999 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}",
    ],
)
def test_a_template_with_too_much_output_or_recursion_is_an_error(template: str) -> None:
    with pytest.raises(TemplateError, match=r"makes more than 200000 characters|exceeds a limit"):
        rendered(template)


def test_a_template_that_includes_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "again.md").write_text("{% include 'again.md' %}")
    with pytest.raises(TemplateError, match="exceeds a limit"):
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
