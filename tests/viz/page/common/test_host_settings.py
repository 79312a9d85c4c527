"""Settings of the host: environment variables, options, errors and the documented table."""

from pathlib import Path
from typing import Any

import pytest

from pine_engine.web.addresses import is_in
from viz.page.common.host_settings import PUBLIC_SECONDS, HostSettings, read_settings, settings_table

ONLY_HOST = ("SmolLM2-135M-Instruct",)
HOSTING = Path(__file__).parents[4] / "docs" / "hosting.md"


@pytest.fixture(autouse=True)
def set_variables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment variables of a test case."""
    for name, value in getattr(request, "param", {}).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "set_variables",
    [
        {
            "PINE_MODEL": "",
            "PINE_MODELS": "one/model, two/model,",
            "PINE_READ_ONLY": "yes",
            "PINE_MAX_PROMPT_TOKENS": "5",
            "PINE_MAX_SECONDS": "90.5",
            "PINE_DTYPE": "bfloat16",
        }
    ],
    indirect=True,
)
def test_settings_option_and_variable_prefer_option() -> None:
    settings = read_settings(["--dtype", "float16", "--port", "8000"])
    expected: dict[str, Any] = {
        "models": ("one/model", "two/model"),
        "read_only": True,
        "max_prompt_tokens": 5,
        "max_seconds": 90.5,
        "dtype": "float16",
        "port": 8000,
    }
    assert settings.model_dump(exclude_defaults=True) == expected


LARGE = ("max-active-runs", "max-prompt-tokens")


@pytest.mark.parametrize(
    ("arguments", "set_variables", "source"),
    [
        ([], {"PINE_MAX_ACTIVE_RUNS": "0"}, "PINE_MAX_ACTIVE_RUNS"),
        ([], {"PINE_MAX_SECONDS": "nan"}, "PINE_MAX_SECONDS"),
        (["--dtype", "int4"], {}, "--dtype"),
        (["--port=0"], {"PINE_PORT": "8000"}, "--port"),
        ([], {"PINE_ALLOWED_HOSTS": "https://x.example/"}, "PINE_ALLOWED_HOSTS"),
        ([], {"PINE_ALLOWED_HOSTS": "x.example:80"}, "PINE_ALLOWED_HOSTS"),
        *(
            ([], {"PINE_ALLOWED_HOSTS": name}, "PINE_ALLOWED_HOSTS")
            for name in ('["a"]', "a b", "[::1]", "300.1.1.1", "pine.exämple", "a..b", ".example", "-a", "a?")
        ),
        *((["--host", host], {}, "--host") for host in ("300.1.1.1", "http://a", "a:80", "*", "[::1]")),
        *(
            ([], {"PINE_ROOT_PATH": path}, "PINE_ROOT_PATH")
            for path in (
                '/p"><script>',
                "/p'",
                "/a/../b",
                "/%zz",
                "https://300.1.1.1/p",
                "/ä",
                "https://a:b/p",
            )
        ),
        *(
            (["--endpoint", url, "--model", "m"], {}, "--endpoint")
            for url in ("http://300.1.1.1/v1", "http://a:99999/v1", 'http://"a"/v1')
        ),
        ([], {"PINE_TRUSTED_PROXIES": "proxy"}, "PINE_TRUSTED_PROXIES"),
        ([], {"PINE_AUTH": "secret"}, "PINE_AUTH"),
        ([], {"PINE_AUHT": "ada:secret"}, "PINE_AUTH"),
        (["--max-seconds", "3"], {"pine_max_second": "2"}, "PINE_MAX_SECONDS"),
        ([], {"PINE_MAX_ROWS": "12"}, "PINE_MAX_ROWS"),  # of earlier versions
        *(([], {"PINE_ROOT_PATH": path}, "PINE_ROOT_PATH") for path in ("pine", "/a b", "/pine?x", "/p\n")),
        ([], {"PINE_MAX_SECONDS": "inf"}, "PINE_MAX_SECONDS"),
        ([], {"PINE_MAX_DISK_MB": "1e300"}, "PINE_MAX_DISK_MB"),
        ([], {"PINE_MAX_ACTIVE_RUNS": "9" * 5000}, "PINE_MAX_ACTIVE_RUNS"),
        *(([f"--{name}={10**30}"], {}, f"--{name}") for name in LARGE),
        (["--max-sec", "3"], {}, "--max-sec"),
        ([], {"PINE_ENDPOINT": "http://host/v1"}, "PINE_MODEL"),
        ([], {"PINE_ENDPOINT": "host:8000", "PINE_MODEL": "m"}, "PINE_ENDPOINT"),
        (["--endpoint", "http://h/v1", "--model", "m", "--models", "n"], {}, "--endpoint"),
        (["--endpoint", "http://h/v1", "--model", "m", "--extra-body", "[]"], {}, "--extra-body"),
        (["--endpoint", "http://h/v1", "--model", "m", "--extra-body", "[" * 9_999], {}, "--extra-body"),
        ([], {"PINE_EXTRA_BODY": "{}"}, "PINE_ENDPOINT"),
        (
            [],
            {"PINE_ENDPOINT": "http://h/v1", "PINE_MODEL": "m", "OPENAI_API_KEY": "secret\n"},
            "OPENAI_API_KEY",
        ),
    ],
    indirect=["set_variables"],
)
def test_settings_invalid_value_exits_naming_source(
    arguments: list[str], source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        read_settings(arguments)
    message = capsys.readouterr().err
    assert raised.value.code == 2
    assert source in message and "Traceback" not in message and "secret" not in message
    assert len(message) < 1_000


def test_documented_table_lists_all_settings() -> None:
    """If not: paste the output of `python -m viz.page.common.host_settings`."""
    assert settings_table() in HOSTING.read_text(encoding="utf-8")
    assert all(field.description for field in HostSettings.model_fields.values())


SPACE = {"SPACE_ID": "someone/space"}


@pytest.mark.parametrize(
    ("settings", "set_variables", "models"),
    [
        ({}, {}, None),
        ({"host": "127.0.0.1"}, {}, None),
        ({"host": "0.0.0.0"}, {}, ONLY_HOST),
        ({"root_path": "/pine"}, {}, ONLY_HOST),
        ({"root_path": "https://pine.example:8443/a-b/~c%20d"}, {}, ONLY_HOST),
        ({"allowed_hosts": ("*.pine.example", "192.0.2.1", "2001:db8::1", "app_1-*.example")}, {}, ONLY_HOST),
        ({}, SPACE, ONLY_HOST),
        ({}, {"GRADIO_SERVER_NAME": "0.0.0.0"}, ONLY_HOST),
        ({}, {"GRADIO_ROOT_PATH": "/pine"}, ONLY_HOST),
        ({}, {"GRADIO_SHARE": "True"}, ONLY_HOST),
        ({}, {"GRADIO_SHARE": "False"}, None),
        ({"allowed_hosts": ("pine.example",)}, {}, ONLY_HOST),
        ({"allowed_hosts": ("localhost", "::1")}, {}, None),
        ({"allowed_hosts": ("*",)}, {}, ONLY_HOST),
        ({"models": ("one/model",)}, {}, ("one/model",)),
        ({"models": ("one/model",), "host": "0.0.0.0"}, {}, ("one/model",)),
        ({"model": "my/model", "host": "0.0.0.0"}, {}, ("my/model",)),
    ],
    indirect=["set_variables"],
)
def test_public_page_restricts_models_and_time(
    settings: dict[str, Any], models: tuple[str, ...] | None
) -> None:
    read = HostSettings(**settings)
    assert read.selectable_models == models
    assert read.time_limit_s == (PUBLIC_SECONDS if read.is_public else None)
    assert HostSettings(**settings, max_seconds=20).time_limit_s == 20


@pytest.mark.parametrize(
    ("settings", "set_variables", "trusted", "untrusted"),
    [
        ({}, {}, "127.0.0.2", "10.0.0.1"),
        ({"host": "0.0.0.0"}, {}, "::1", "192.168.1.40"),
        ({}, SPACE, "10.0.0.1", "203.0.113.9"),
        ({"trusted_proxies": ("172.30.0.1/24",)}, SPACE, "172.30.0.2", "10.0.0.1"),
    ],
    indirect=["set_variables"],
)
def test_proxies_are_local_of_space_or_named(settings: dict[str, Any], trusted: str, untrusted: str) -> None:
    proxies = HostSettings(**settings).proxies
    assert is_in(trusted, proxies) and not is_in(untrusted, proxies)


def test_settings_password_is_not_shown() -> None:
    assert "lovelace" not in repr(HostSettings(auth="ada:lovelace"))
