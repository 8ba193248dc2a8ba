"""Build the documentation site: the pages of docs/, the README, the changelog, and the keys of the configuration.

``python deploy/docs/build.py FOLDER``; every warning, such as a dead link, is an error.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.cmd.build import build_main

from service.config.config import ServiceConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
# Links to files that are not on the site keep their text only.
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|[\w-]+\.md|\w+\.png)[^)]+\)")
_PARTS = {
    "Start": "first-agent installation slack-setup faq glossary changelog",
    "In Slack": "chatting threads commands approvals files direct-messages workers recipes schedules tools",
    "Operations": "operators configuration configuration-keys deployment operations administration observability "
    "security sizing sessions workspaces upgrading troubleshooting",
    "Modules": "modules kernel interaction-stack local-slack",
    "Design": "architecture durability slack steering background failure-modes contributing",
    "Evidence": "benchmarks conformance comparison",
}


def build(site: Path) -> int:
    """Build into this folder and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(ROOT / "docs", source, dirs_exist_ok=True)
        shutil.copyfile(HERE / "conf.py", source / "conf.py")
        for name in ("CHANGELOG", "CONTRIBUTING"):
            (source / f"{name.lower()}.md").write_text(_top(f"{name}.md"), encoding="utf-8")
        for name, lines in (("index", _index()), ("configuration-keys", _keys())):
            (source / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")
        for page in source.glob("*.md"):
            page.write_text(_linked(page.read_text(encoding="utf-8")), encoding="utf-8")
        return build_main(["--quiet", "--fail-on-warning", "--keep-going", "-b", "dirhtml", folder, str(site)])


def _top(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")


def _linked(markdown: str) -> str:
    for name, page in (("CHANGELOG", "changelog"), ("CONTRIBUTING", "contributing"), ("README", "index")):
        markdown = re.sub(rf"\]\((?:\.\./)?{name}\.md", f"]({page}.md", markdown)
    return _OUTSIDE.sub(r"\1", markdown)


def _index() -> Iterator[str]:
    yield _top("README.md")
    for part, pages in _PARTS.items():
        yield f"```{{toctree}}\n:hidden:\n:caption: {part}\n"
        yield "\n".join(pages.split())
        yield "```\n"


def _keys() -> Iterator[str]:
    """Yield the reference of all keys, from the models that check the file."""
    schema = ServiceConfig.model_json_schema()
    yield "# All keys of the configuration\n"
    yield "Made from the models that check the file; [configuration](configuration.md) tells how they work together.\n"
    yield from _section("The file", schema)
    for name, section in schema["$defs"].items():
        yield from _section(_title(name), section)


def _section(title: str, section: dict[str, Any]) -> Iterator[str]:
    section = next((each for each in section.get("anyOf", ()) if "properties" in each), section)
    yield f"## {title}\n\n{_cell(section.get('description', ''))}\n"
    if "properties" in section:
        yield "| key | value | default | |\n|---|---|---|---|"
    for name, key in section.get("properties", {}).items():
        default = "required" if name in section.get("required", ()) else _default(key)
        yield f"| `{name}` | {_kind(key)} | {default} | {_cell(key.get('description', ''))} |"
    yield ""


def _default(key: dict[str, Any]) -> str:
    value = None if key.get("writeOnly") else key.get("default")
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "" if value is None or isinstance(value, list | dict) else f"`{_cell(str(value))}`"


def _kind(key: dict[str, Any]) -> str:
    """Describe the possible values."""
    kinds = [each for each in (*key.get("anyOf", ()), *key.get("oneOf", ())) if each != {"type": "null"}]
    if kinds:
        return " or ".join(dict.fromkeys(map(_kind, kinds)))
    if "$ref" in key:
        title = _title(key["$ref"].rpartition("/")[2])
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if words := key.get("enum", [key["const"]] if "const" in key else []):
        return ", ".join(f"`{word}`" for word in words)
    items, each = key.get("items", {}), key.get("additionalProperties")
    return {
        "array": f"list of {_kind(items) if items else 'values'}",
        "object": f"names and {_kind(each)}" if isinstance(each, dict) else "keys",
        "string": "text",
        "boolean": "`true`, `false`",
    }.get(key.get("type", "any"), f"{key.get('type', 'any')}{_range(key)}")


def _range(key: dict[str, Any]) -> str:
    low = f" from {key['minimum']}" if "minimum" in key else ""
    low = f" above {key['exclusiveMinimum']}" if "exclusiveMinimum" in key else low
    return f"{low} to {key['maximum']}" if "maximum" in key else low


def _title(name: str) -> str:
    return " ".join(re.findall(r"[A-Z][a-z]*", name.removesuffix("Config"))).capitalize()


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
