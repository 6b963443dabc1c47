"""The ChatML text form: one place for what the models see around a message."""

from collections.abc import Iterable
from typing import NamedTuple

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
FIM_PREFIX = "<|fim_prefix|>"
FIM_MIDDLE = "<|fim_middle|>"
FIM_SUFFIX = "<|fim_suffix|>"
FILE_SEPARATOR = "<|file_sep|>"

# The position in this list is the token's id: the first nine entries of the vocabulary.
SPECIAL_TOKENS = [
    END_OF_TEXT,
    TURN_START,
    TURN_END,
    FIM_PREFIX,
    FIM_MIDDLE,
    FIM_SUFFIX,
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
]

TOOLS_INTRODUCTION = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_END = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)

# Tools, calls and results as Qwen2.5's template renders them, without its own default system prompt.
# The line feeds are real ones, inside the template's string literals.
CHAT_TEMPLATE = (
    "{% set has_system = messages and messages[0]['role'] == 'system' %}"
    "{% if tools %}"
    "{{ '<|im_start|>system\n' }}"
    "{% if has_system %}{{ messages[0]['content'] + '\n\n' }}{% endif %}"
    f"{{{{ '{TOOLS_INTRODUCTION}' }}}}"
    "{% for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}"
    f"{{{{ '{TOOLS_END}' }}}}"
    "{{ '<|im_end|>\n' }}"
    "{% endif %}"
    "{% for m in messages %}"
    "{% if m['role'] == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1]['role'] != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\n<tool_response>\n' + m['content'] + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1]['role'] != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% elif m['role'] == 'assistant' and m['tool_calls'] %}"
    "{{ '<|im_start|>assistant' }}"
    "{% if m['content'] %}{{ '\n' + m['content'] }}{% endif %}"
    "{% for call in m['tool_calls'] %}"
    "{% set f = call['function'] if call['function'] else call %}"
    "{{ '\n<tool_call>\n{\"name\": \"' + f['name'] + '\", \"arguments\": ' }}"
    "{{ f['arguments'] if f['arguments'] is string else f['arguments'] | tojson }}"
    "{{ '}\n</tool_call>' }}"
    "{% endfor %}"
    "{{ '<|im_end|>\n' }}"
    "{% elif not (tools and loop.first and has_system) %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Piece(NamedTuple):
    """A part of an example; the loss counts the tokens of taught pieces alone."""

    text: str
    taught: bool


Example = list[Piece]


def format_turn(role: str, content: str) -> str:
    """One message as the chat template renders it."""
    return f"{TURN_START}{role}\n{content}{TURN_END}\n"


def chat_example(exchanges: Iterable[tuple[str, str]], *, system: str = "") -> Example:
    """(question, answer) pairs as an example that teaches the answers and their ends."""
    pieces = [Piece(format_turn("system", system), False)] if system else []
    for question, answer in exchanges:
        pieces.append(Piece(format_prompt(question), False))
        pieces.append(Piece(answer + TURN_END, True))
        pieces.append(Piece("\n", False))
    return pieces


def format_prompt(question: str) -> str:
    """What a model is given to answer `question`: the template with its generation prompt."""
    return format_turn("user", question) + f"{TURN_START}assistant\n"


def fenced(source: str) -> str:
    """Python source in a Markdown fence; the closing fence always starts its own line."""
    body = source if source.endswith("\n") else source + "\n"
    return f"```python\n{body}```"


def has_special_token(text: str) -> bool:
    """Whether plain text spells a special token, which the tokenizer would take for a real one."""
    return any(token in text for token in SPECIAL_TOKENS)
