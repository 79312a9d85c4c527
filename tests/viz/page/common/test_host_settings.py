"""Settings of the host: variables, flags, refusals and the table in docs/hosting.md."""

from pathlib import Path
from typing import Any

import pytest

from viz.page.common.addresses import is_in, networks_of
from viz.page.common.host_settings import (
    PUBLIC_SECONDS,
    HostSettings,
    allowed_models,
    proxies,
    read_settings,
    time_limit,
    variable,
    write_into,
)

HOSTING = Path(__file__).parents[4] / "docs" / "hosting.md"


def test_variables_and_flags_are_read_and_the_flag_wins() -> None:
    environment = {
        "PINE_MODEL": "",
        "PINE_MODELS": "one/model, two/model,",
        "PINE_READ_ONLY": "yes",
        "PINE_MAX_DOCUMENTS": "5",
        "PINE_MAX_SECONDS": "90.5",
        "PINE_DTYPE": "bfloat16",
        "HOME": "/",
    }
    settings = read_settings(["--dtype", "float16", "--port", "8000"], environment)
    assert settings == HostSettings(
        models=("one/model", "two/model"),
        read_only=True,
        max_documents=5,
        max_seconds=90.5,
        dtype="float16",
        port=8000,
    )
    assert read_settings(["--read-only"], {}).read_only and not read_settings([], {}).read_only


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (
            [],
            {"PINE_MAX_DOCUMENTS": "99"},
            "PINE_MAX_DOCUMENTS is '99'; it should be less than or equal to 20",
        ),
        ([], {"PINE_MAX_ROWS": "many"}, "PINE_MAX_ROWS is 'many'; it should be a valid integer"),
        ([], {"PINE_READ_ONLY": "perhaps"}, "PINE_READ_ONLY is 'perhaps'; it should be a valid boolean"),
        ([], {"PINE_MAX_SECONDS": "nan"}, "PINE_MAX_SECONDS is 'nan'; it should be"),
        (
            ["--dtype", "int4"],
            {},
            "--dtype is 'int4'; it should be 'auto', 'float32', 'bfloat16', 'float16' or '4bit'",
        ),
        (["--port", "0"], {"PINE_PORT": "8000"}, "--port is '0'; it should be greater than or equal to 1"),
        ([], {"PINE_ALLOWED_HOSTS": "https://x.example/"}, "it should be names without scheme"),
        (
            [],
            {"PINE_ALLOWED_HOSTS": "x.example:80"},
            "names without scheme, port and path, not 'x.example:80'",
        ),
        ([], {"PINE_TRUSTED_PROXIES": "proxy"}, "PINE_TRUSTED_PROXIES is 'proxy'; it should be"),
        (
            [],
            {"PINE_FRAME_ANCESTORS": "*; script-src *"},
            "PINE_FRAME_ANCESTORS is '*; script-src *'; it should be sites",
        ),
        ([], {"PINE_AUTH": "nobody"}, "PINE_AUTH is not name:password"),
        (["--max-doc", "3"], {}, "unrecognized arguments: --max-doc"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_is_expected(
    arguments: list[str], environment: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(arguments, environment)
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert sentence in message and "Traceback" not in message


def test_the_documented_table_is_the_table(tmp_path: Path) -> None:
    """If not: python -m viz.page.common.host_settings docs/hosting.md."""
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
        ({}, {"GRADIO_ROOT_PATH": "/pine"}, ()),
        ({}, {"GRADIO_SHARE": "True"}, ()),
        ({}, {"GRADIO_SHARE": "False"}, None),
        ({"allowed_hosts": ("pine.example",)}, {}, ()),
        ({"allowed_hosts": ("localhost", "::1")}, {}, None),
        ({"allowed_hosts": ("*",)}, {}, ()),
        ({"models": ("one/model",)}, {}, ("one/model",)),
        ({"models": ("one/model",), "host": "0.0.0.0"}, {}, ("one/model",)),
    ],
)
def test_any_model_is_allowed_only_on_private_hosts(
    settings: dict[str, Any], environment: dict[str, str], allowed: tuple[str, ...] | None
) -> None:
    assert allowed_models(HostSettings(**settings), environment) == allowed


@pytest.mark.parametrize(
    ("settings", "environment", "trusted", "untrusted"),
    [
        ({}, {}, "127.0.0.2", "10.0.0.1"),
        ({"host": "0.0.0.0"}, {}, "::1", "192.168.1.40"),
        ({}, {"SPACE_ID": "someone/space"}, "10.0.0.1", "203.0.113.9"),
        ({"trusted_proxies": ("172.30.0.0/24",)}, {"SPACE_ID": "someone/space"}, "172.30.0.2", "10.0.0.1"),
    ],
)
def test_proxies_are_those_of_this_machine_of_the_space_or_named(
    settings: dict[str, Any], environment: dict[str, str], trusted: str, untrusted: str
) -> None:
    networks = networks_of(proxies(HostSettings(**settings), environment))
    assert is_in(trusted, networks) and not is_in(untrusted, networks)


def test_a_run_ends_in_time_wherever_others_wait_for_it() -> None:
    assert time_limit(HostSettings(), {}) is None
    assert time_limit(HostSettings(host="0.0.0.0"), {}) == PUBLIC_SECONDS
    assert time_limit(HostSettings(), {"SPACE_ID": "someone/space"}) == PUBLIC_SECONDS
    assert time_limit(HostSettings(max_seconds=20), {"SPACE_ID": "x/y"}) == 20
    assert time_limit(HostSettings(max_seconds=20), {}) == 20


def test_a_password_is_not_shown() -> None:
    assert "lovelace" not in repr(HostSettings(auth="ada:lovelace"))
