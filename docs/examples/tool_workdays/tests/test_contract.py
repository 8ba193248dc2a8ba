from typing import Any


def test_module_keeps_its_contract(validate_module: Any) -> None:
    validate_module(".", module_type="tool", config={"holidays": ["2026-12-25"]})
