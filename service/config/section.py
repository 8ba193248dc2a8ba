"""A section of the configuration file, and its JSON schema with the descriptions of the keys."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_ARGUMENT = re.compile(r"^(\w+): (.+(?:\n[ ]+.+)*)", re.MULTILINE)


class Section(BaseModel):
    """Immutable values without unknown keys. The docstring's `Args:` describe the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Return the descriptions of the keys, those of base classes included."""
        found: dict[str, str] = {}
        for each in reversed(cls.__mro__):
            arguments = inspect.cleandoc(each.__doc__ or "").partition("Args:\n")[2]
            found.update(_ARGUMENT.findall(inspect.cleandoc(f"\n{arguments}")) if issubclass(each, Section) else ())
        return {name: " ".join(text.replace("`", "").split()) for name, text in found.items()}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["description"] = inspect.cleandoc(cls.__doc__ or "").partition("\n\nArgs:")[0].replace("`", "")
        for name, description in cls.descriptions().items():
            schema["properties"][name]["description"] = description
        return schema
