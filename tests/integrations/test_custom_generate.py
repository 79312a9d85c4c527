"""`model.generate(custom_generate=...)`: against the engine and patch_generate."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import dynamic_module_utils

from pine_engine import CUSTOM_GENERATE, Engine, InputError, TokenLayout, patch_generate
from tests.engine.test_transformers_generate import lora
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer

REQUEST: dict[str, Any] = {"question": "Who?", "documents": ["red", {"text": "green", "source": "a.md"}]}
LAYOUT = TokenLayout((5, 9), ((11, 12), (21,)), (51,))
TOKENIZER = letter_tokenizer()


@pytest.fixture(autouse=True)
def _modules_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def model(tiny_llama: TinyLlama) -> Any:
    return tiny_llama(max_context_length=4096)


def generate(model: Any, **options: Any) -> Any:
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, **options}
    return model.generate(custom_generate=CUSTOM_GENERATE, trust_remote_code=True, **options)


@pytest.mark.parametrize("method", ["pine", "vanilla"])
def test_answer_equals_that_of_the_engine(model: Any, method: str) -> None:
    run = Engine(model, TOKENIZER).run(
        **REQUEST, methods=method, max_new_tokens=5, stop_at_eos=False, return_logits=True
    )
    output = generate(model, **REQUEST, tokenizer=TOKENIZER, method=method)
    assert output.tolist() == [[*run.layout.ids, *run.answers[method].token_ids]]
    chat = generate(model, messages=[{"role": "user", "content": "Who?"}], documents=REQUEST["documents"],
                    tokenizer=TOKENIZER, method=method, return_prompt=False)  # fmt: skip
    assert chat.tolist() == [list(run.answers[method].token_ids)]


def test_options_of_generate_work_as_in_patch_generate(model: Any) -> None:
    options: dict[str, Any] = {
        "num_beams": 3, "return_dict_in_generate": True, "max_new_tokens": 5, "min_new_tokens": 5,
        "stop_strings": list("CDEFGHIJKLMNOP"), "tokenizer": TOKENIZER,
    }  # fmt: skip
    with patch_generate(model, LAYOUT, method="pine") as inputs:
        expected = model.generate(**inputs, **options, do_sample=False).sequences
    assert torch.equal(generate(model, prompt=LAYOUT, **options).sequences, expected)
    new = generate(model, prompt=LAYOUT, **options, return_prompt=False).sequences
    assert torch.equal(new, expected[:, LAYOUT.num_tokens :])


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # by peft
def test_adapter_answers_and_is_order_invariant(model: Any) -> None:
    base = generate(model, prompt=LAYOUT, return_prompt=False)
    adapted = lora(model)
    answers = [
        generate(adapted, prompt=layout, return_prompt=False).tolist()
        for layout in (LAYOUT, LAYOUT.reorder([1, 0]))
    ]
    assert answers[0] == answers[1] != base.tolist()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"prompt": LAYOUT, "input_ids": torch.tensor([[1]])}, "input_ids"),
        ({"prompt": LAYOUT, **REQUEST}, "prompt"),
        ({"question": "Who?", "tokenizer": TOKENIZER}, "documents"),
        ({"prompt": LAYOUT, "method": "nbce"}, "method"),
    ],
)
def test_wrong_argument_raises(model: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        generate(model, **options)
    assert raised.value.field == field
