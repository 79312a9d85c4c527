"""Limits of chat templates: hostile ones end in an error in bounded time, real ones render as before."""

import time
from typing import Any

import pytest

from pine_engine.errors import ModelError
from pine_engine.prompts import template_limits
from pine_engine.prompts.chat_templates import render_chat_template, with_date
from tests.support.tokenizers import CHAT_TEMPLATE, IN_PARTS, THINKING, byte_tokenizer

CHAT = [{"role": "user", "content": "Q"}]

BILLIONS = 3_000_000_000
LONG = "{% set x = 'a' * 900000 %}"
MANY = "{% set x = range(100000) | list %}"
DOUBLED = (
    "{% set ns = namespace(x=START) %}{% for i in range(100) %}{% set ns.x = GROW %}{% endfor %}{{ ns.x }}"
)


def doubled(start: str, grow: str) -> str:
    return DOUBLED.replace("START", start).replace("GROW", grow)


HOSTILE = [
    # Code, endless loops and recursion.
    "{{ messages.__class__.__mro__ }}",
    "{% for %}",
    "{{ 1 / 0 }}",
    "{{ raise_exception('never') }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ 1 }}" * 100_000,
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for i in range(100000) %}" * 3 + "{% endfor %}" * 3,
    "{% for i in range(100000) %}{% for j in range(100000) if j < 0 %}{% endfor %}{% endfor %}",
    # Widths.
    f"{{{{ 'x' | center({BILLIONS}) }}}}",
    f"{{{{ 'x'.center({BILLIONS}) }}}}",
    f"{{{{ 'x'.ljust({BILLIONS}) }}}}",
    f"{{{{ 'x'.rjust(width={BILLIONS}) }}}}" + "{{ 1 / 0 }}",
    f"{{{{ 'x'.zfill({BILLIONS}) }}}}",
    f"{{{{ '\\t'.expandtabs({BILLIONS}) }}}}",
    f"{{{{ 'x' | indent({BILLIONS}, first=true) }}}}",
    f"{{{{ 'x' | indent(width={BILLIONS}, first=true) }}}}",
    f"{{{{ ['x'] | batch({BILLIONS}, 'y') | list }}}}",
    f"{{{{ ['x'] | slice({BILLIONS}) | list }}}}",
    f"{{{{ [[1]] | tojson(indent={BILLIONS}) }}}}",
    f"{{{{ 5 | round(-{BILLIONS}) }}}}",
    f"{{{{ 5 | round({BILLIONS}, 'floor') }}}}",
    f"{{{{ 1.5 .__round__({BILLIONS}) }}}}",
    f"{{{{ (1).to_bytes({BILLIONS}, 'big') }}}}",
    f"{{{{ lipsum(n={BILLIONS}) }}}}",
    f"{{{{ lipsum({BILLIONS}) }}}}",
    # Formats.
    f"{{{{ '%{BILLIONS}d' % 1 }}}}",
    f"{{{{ '%.{BILLIONS}f' % 1 }}}}",
    f"{{{{ '%*d' % ({BILLIONS}, 1) }}}}",
    f"{{{{ '%((a)){BILLIONS}d' % {{'(a)': 1}} }}}}",
    f"{{{{ '%{BILLIONS}d' | format(1) }}}}",
    f"{{{{ '{{:{BILLIONS}d}}'.format(1) }}}}",
    f"{{{{ '{{:{{}}}}'.format(1, {BILLIONS}) }}}}",
    f"{{{{ '{{a:{BILLIONS}d}}'.format_map({{'a': 1}}) }}}}",
    LONG + "{{ ('%(a)s' * 100000) % {'a': x} }}",
    LONG + "{{ ('{0}' * 100000).format(x) }}",
    # Growth by doubling.
    doubled("'x'", "ns.x ~ ns.x"),
    doubled("'x'", "ns.x + ns.x"),
    doubled("'x'", "'%s%s' % (ns.x, ns.x)"),
    doubled("'x'", "[ns.x, ns.x] | join"),
    doubled("'x'", "ns.x | replace('x', 'xx')"),
    doubled("'x'", "ns.x.replace('', 'x')"),
    doubled("[1]", "ns.x + ns.x"),
    doubled("[1]", "[ns.x, ns.x]"),
    doubled("(1,)", "(ns.x, ns.x)"),
    doubled("{}", "{'a': ns.x, 'b': ns.x}"),
    doubled("7", "ns.x * ns.x"),
    doubled("7", "ns.x ** 9"),
    "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = y %}{% endfor %}",
    "{{ 'a' * 10000000000 }}",
    "{{ [1] * 10000000000 }}",
    "{{ 2 ** 10000000000 }}",
    "{{ 10000000000 * ('a' * 1000) }}",
    # Long sequences and texts.
    MANY + "{{ (x | map('list') | list) }}" + "{{ 1 / 0 }}",
    MANY + "{{ [x] * 100000 }}",
    MANY + "{{ x | map('string') | map('center', 10000) | list | length }}",
    MANY + "{{ ([x] * 9) | sum(start=[]) | length }}{{ ([[1] * 9] * 90000) | sum(start=[]) | length }}",
    MANY + "{% for y in x %}{{ x | sum }}{% endfor %}",
    MANY + "{% for y in x %}{{ x | sort(reverse=true) | length }}{% endfor %}",
    MANY + "{% for y in x %}{{ x | groupby('real') | length }}{% endfor %}",
    MANY + "{% for y in x %}{{ x | tojson | length }}{% endfor %}",
    MANY + "{{ x | join('a' * 100000) }}",
    MANY + "{{ ('a' * 100000).join(x | map('string')) }}",
    LONG + "{{ ([x] * 100000) | join | length }}",
    LONG + "{{ ([x] * 100000) | sort | length }}",
    LONG + "{{ ([x] * 100000) | unique | list | length }}",
    LONG + "{{ ([{'a': x}] * 100000) | groupby('a') | list }}",
    LONG + "{% for i in range(100000) %}{{ x }}{% endfor %}",
    LONG + "{% for i in range(100000) %}{% for j in range(100000) %}{{ x | upper }}{% endfor %}{% endfor %}",
    LONG + "{{ x.replace('a', x) }}",
    LONG + "{{ x.translate({97: x}) }}",
    LONG + "{{ x | wordwrap(1) }}",
    LONG + "{{ x | urlize }}",
    LONG + "{{ ([1] * 1000) | tojson(separators=(x, x)) }}",
    "{% for i in range(100000) %}" + "b" * 100_000 + "{% endfor %}",
    "{% for i in range(100000) %}{{ '" + "b" * 100_000 + "' }}{% endfor %}",
]


@pytest.mark.parametrize("template", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_template_is_rejected_in_bounded_time(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "RENDER_S", 0.2)
    tokenizer = byte_tokenizer(chat_template=template)
    started = time.thread_time()
    with pytest.raises(ModelError) as error:
        render_chat_template(tokenizer, CHAT, {})
    assert time.thread_time() - started < 10  # on a busy machine; without a limit hours, or never
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_template_that_cannot_be_compiled_has_no_date() -> None:
    with pytest.raises(ModelError):
        with_date(byte_tokenizer(chat_template="{{ 1 }}" * 100_000), {})


LLAMA_3 = (
    "{{- bos_token }}{%- set day = strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul' %}"
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}{{- 'Today: 26 Jul\n\n' ~ system_message }}"
    "{%- for message in messages %}{%- if not (message.role == 'ipython' or 'tool_calls' in message) %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim }}"
    "{%- elif message.tool_calls|length != 1 %}{{- raise_exception('one') }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
QWEN_3 = (
    "{%- if tools %}{{- 'tools' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}{%- endif %}"
    "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}"
    "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
    "{%- if ns.multi_step_tool and message.role == 'user' and message.content is string and not("
    "message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}"
    "{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}"
    "{%- for message in messages %}{%- set content = message.content %}"
    "{%- if message.role == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}"
    "{%- endif %}"
)
DEEPSEEK = (
    "{% set ns = namespace(is_first=false, system_prompt='') %}{%- for message in messages %}"
    "{%- if message['role'] == 'system' %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}"
    "{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' %}{{ '<|Assistant|>' ~ message['content'] ~ eos_token }}"
    "{%- endif %}{%- endfor %}{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"
)
GPT_OSS = (
    "{%- macro render(text, level=0) -%}{{ '%s' | format(text) | indent(2 * level) }}{%- endmacro -%}"
    "{% generation %}{{ 'Knowledge cutoff: {}'.format('2024-06') }}{% endgeneration %}"
    "{%- for message in messages if message.content -%}"
    "{{ '<|start|>%s<|message|>%s' % (message.role, render(message.content)) }}"
    "{%- if loop.last %}{% break %}{% endif %}{%- endfor -%}"
    "{{ messages | map(attribute='role') | unique | join(', ') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ messages | tojson(indent=2) }}{{ dict(a=1) | dictsort }}{{ [[1], [2]] | sum(start=[]) }}"
    "{{ [{'n': 2}, {'n': 3}] | sum(attribute='n') }}{{ [1, 2] | max }}{{ range(3) | list }}"
    "{{ 7 % 4 }}{{ 2 ** 5 }}{{ 3 * 'ab' }}{{ 12345678 | round(2) }}{{ (1, 'a') }}{{ {'a': [1]} }}"
)


@pytest.mark.parametrize(
    "template", [CHAT_TEMPLATE, IN_PARTS, THINKING, LLAMA_3, QWEN_3, DEEPSEEK, GPT_OSS], ids=range(7)
)
@pytest.mark.parametrize("content", ["Who has the key?", "Wer? 鍵 100% {0} %s\n" * 3, "x" * 3_000_000])
def test_real_template_renders_as_in_transformers(template: str, content: str) -> None:
    parts: Any = [{"type": "text", "text": content}] if template == IN_PARTS else content
    chat = [{"role": "system", "content": parts}, {"role": "user", "content": parts}]
    tokenizer = byte_tokenizer(chat_template=template)
    expected = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert render_chat_template(tokenizer, chat, {}) == expected
