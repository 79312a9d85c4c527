"""Functions of the scripts, called without a browser: V8 has no document, so that nothing can be drawn."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.forks import ROOT
from viz.drawing.scripts import join_modules

NO_BROWSER = """
const nothing = { addEventListener() {} };
const [window, document] = [nothing, nothing];
const matchMedia = () => ({ matches: false });
const MutationObserver = class { observe() {} };
const HTMLElement = class {};
const customElements = { define() {} };
const SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const atob = (text) => {
  const digits = (sign) => SIGNS.indexOf(sign).toString(2).padStart(6, "0");
  const bits = [...text.replace(/=+$/, "")].map(digits).join("");
  return (bits.match(/.{8}/g) ?? []).map((byte) => String.fromCharCode(parseInt(byte, 2))).join("");
};
"""

FOLDERS = (ROOT / "assets", ROOT / "viz" / "drawing")

Call = Callable[..., Any]


def scripts(*names: str) -> Call:
    """Return a function that calls `MODULE.FUNCTION` of these scripts, or an arrow function, with JSON."""
    package = pytest.importorskip("py_mini_racer", reason="mini-racer is not installed")
    engine = package.MiniRacer()
    paths = [path for name in names for folder in FOLDERS if (path := folder / f"{name}.js").exists()]
    assert len(paths) == len(names)
    engine.eval(NO_BROWSER + join_modules(paths))

    def call(function: str, *arguments: object) -> Any:
        given = json.dumps(arguments)
        called = f"({function})" if function.startswith("(") else f"pine.{function}"
        return json.loads(engine.eval(f"JSON.stringify({called}(...{given}) ?? null)"))

    return call
