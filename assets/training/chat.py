"""The ChatML text form: one place for what the models see around a message."""

from collections.abc import Iterable

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
FIM_PREFIX = "<|fim_prefix|>"
FIM_MIDDLE = "<|fim_middle|>"
FIM_SUFFIX = "<|fim_suffix|>"

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

# The line feeds are real ones, inside the template's string literals.
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def format_turn(role: str, content: str) -> str:
    """One message as the chat template renders it."""
    return f"{TURN_START}{role}\n{content}{TURN_END}\n"


def format_exchange(question: str, answer: str) -> str:
    """A user message and the assistant's answer."""
    return format_turn("user", question) + format_turn("assistant", answer)


def format_chat(exchanges: Iterable[tuple[str, str]]) -> str:
    """A whole training example: (question, answer) pairs and the end of the text."""
    return "".join(format_exchange(*exchange) for exchange in exchanges) + END_OF_TEXT


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
