"""What importing the package costs; who may import whom is checked by import-linter (pyproject.toml)."""

import subprocess
import sys


def test_the_package_itself_imports_nothing_until_it_is_asked() -> None:
    code = "import sys, pine_engine\nprint({'torch', 'transformers', 'numpy', 'pydantic'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
