"""Golden outputs: results of the program, recorded before its structure changes, compared afterwards.

`python tools/golden.py record FOLDER` computes and writes them. `python tools/golden.py compare FOLDER`
computes them again, prints each difference, and exits with status 1 if there is one. Names after FOLDER
select parts or single cases, such as `a/llama b c`. tools/golden_cases.py defines the parts:

- a: logits and answers of all methods, 12 model families, 3 orders, 2 dtypes, 3 batch sizes, as hashes
- b: exit status and `--json` of all subcommands on fixed inputs, and the Markdown of reports
- c: OpenAPI and MCP schemas of the page, without their texts
- e: the figures, as hashes and a summary

The numbers of a, b and e depend on the processor. On another platform than the recorded one these parts are
not compared, and the exit status is 2.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # import this working tree, from any current folder

DEPENDS_ON_PLATFORM = ("a", "b", "e")


def main(words: Sequence[str] | None = None) -> int:
    """Record or compare; return the exit status."""
    from tools.golden_cases import PARTS, platform

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("folder", type=lambda path: Path(path).resolve())
    parser.add_argument("only", nargs="*", help="parts and cases, such as a/llama b; all if none is named")
    options = parser.parse_args(words)
    status = 0
    for part, cases_in in PARTS.items():
        if options.only and part not in {name.partition("/")[0] for name in options.only}:
            continue
        file = options.folder / f"{part}.json"
        recorded = None if options.action == "record" else json.loads(file.read_text(encoding="utf-8"))
        if recorded and part in DEPENDS_ON_PLATFORM and recorded["platform"] != platform():
            print(
                f"{part}: recorded on {recorded['platform']}, and this platform is {platform()}. To compare "
                f"here, check out the commit that `git log -1 --format=%h -- {file}` prints, record into a "
                "folder outside the repository, and compare with that folder."
            )
            status = status or 2
            continue
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.chdir(scratch),
            contextlib.redirect_stdout(sys.stderr),
        ):
            computed = {}
            for name, case in cases_in().items():
                if not options.only or part in options.only or f"{part}/{name}" in options.only:
                    print(f"{part}/{name}", file=sys.stderr)
                    computed[name] = json.loads(json.dumps(case()))
        if recorded is None:
            file.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps({"platform": platform(), "cases": computed}, indent=1, ensure_ascii=False)
            file.write_text(content + "\n", encoding="utf-8")
            continue
        expected = recorded["cases"]
        if options.only and part not in options.only:
            expected = {name: value for name, value in expected.items() if name in computed}
        for line in differences(expected, computed, part):
            print(line)
            status = 1
    return status


def differences(old: Any, new: Any, path: str) -> Iterator[str]:
    """Yield one line for each place at which two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if key in old and key in new:
                yield from differences(old[key], new[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}: only {'recorded' if key in old else 'computed'}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{path}/{index}")
    elif old != new or type(old) is not type(new):
        yield f"{path}: {json.dumps(old)[:200]} -> {json.dumps(new)[:200]}"


if __name__ == "__main__":
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_CACHE": "/nonexistent",
        "HF_HUB_OFFLINE": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
    }
    raise SystemExit(main())
