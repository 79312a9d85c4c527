"""What the host decides: read from variables and flags, refused with a sentence, told in one table."""

from pathlib import Path
from typing import Any

import pytest

from viz.page.host_settings import HostSettings, allowed_models, read_settings, variable, write_into

HOSTING = Path(__file__).parents[1] / "docs" / "hosting.md"


def test_variables_and_flags_are_read_and_the_flag_wins() -> None:
    environment = {
        "PINE_MODEL": "",
        "PINE_MODELS": "one/model, two/model,",
        "PINE_READ_ONLY": "yes",
        "PINE_MOST_DOCUMENTS": "5",
        "PINE_MOST_SECONDS": "90.5",
        "PINE_DTYPE": "bfloat16",
        "HOME": "/",
    }
    settings = read_settings(["--dtype", "float16", "--port", "8000"], environment)
    assert settings == HostSettings(
        models=("one/model", "two/model"),
        read_only=True,
        most_documents=5,
        most_seconds=90.5,
        dtype="float16",
        port=8000,
    )
    assert read_settings(["--read-only"], {}).read_only and not read_settings([], {}).read_only


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (
            [],
            {"PINE_MOST_DOCUMENTS": "99"},
            "PINE_MOST_DOCUMENTS is '99'; it should be less than or equal to 20",
        ),
        ([], {"PINE_MOST_ROWS": "many"}, "PINE_MOST_ROWS is 'many'; it should be a valid integer"),
        ([], {"PINE_READ_ONLY": "perhaps"}, "PINE_READ_ONLY is 'perhaps'; it should be a valid boolean"),
        ([], {"PINE_MOST_SECONDS": "nan"}, "PINE_MOST_SECONDS is 'nan'; it should be"),
        (["--dtype", "int4"], {}, "--dtype is 'int4'; it should be 'float32', 'bfloat16' or 'float16'"),
        (["--port", "0"], {"PINE_PORT": "8000"}, "--port is '0'; it should be greater than or equal to 1"),
        (["--most-doc", "3"], {}, "unrecognized arguments: --most-doc"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_is_expected(
    arguments: list[str], environment: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(arguments, environment)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert sentence in said and "Traceback" not in said


def test_the_documented_table_is_the_table(tmp_path: Path) -> None:
    """If not: python -m viz.page.host_settings docs/hosting.md."""
    copy = tmp_path / "hosting.md"
    copy.write_text(HOSTING.read_text(encoding="utf-8"), encoding="utf-8")
    write_into(copy)
    assert copy.read_text(encoding="utf-8") == HOSTING.read_text(encoding="utf-8")
    for name, field in HostSettings.model_fields.items():
        assert f"| `{variable(name)}` |" in copy.read_text(encoding="utf-8") and field.description


@pytest.mark.parametrize(
    ("settings", "environment", "allowed"),
    [
        ({}, {}, None),
        ({"host": "127.0.0.1"}, {}, None),
        ({"host": "0.0.0.0"}, {}, ()),
        ({"root_path": "/pine"}, {}, ()),
        ({}, {"SPACE_ID": "someone/space"}, ()),
        ({}, {"GRADIO_SERVER_NAME": "0.0.0.0"}, ()),
        ({"models": ("one/model",)}, {}, ("one/model",)),
        ({"models": ("one/model",), "host": "0.0.0.0"}, {}, ("one/model",)),
    ],
)
def test_any_model_may_be_chosen_only_where_nobody_else_comes(
    settings: dict[str, Any], environment: dict[str, str], allowed: tuple[str, ...] | None
) -> None:
    assert allowed_models(HostSettings(**settings), environment) == allowed
