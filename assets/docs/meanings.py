"""Meanings of the HTTP fields that are accepted, by name."""

from __future__ import annotations

MEANINGS = {
    # Sampling and deadlines.
    "temperature": "0 is greedy",
    "top_p": "sample among the fewest tokens with this probability together; 0 is greedy",
    "top_k": "sample among the k most probable tokens; 0 and less: all",
    "min_p": "drop tokens less probable than this share of the most probable one",
    "repeat_penalty": "above 1: tokens that occurred become less probable",
    "repetition_penalty": "another name of `repeat_penalty`",
    "repeat_last_n": "tokens that penalties look back at",
    "frequency_penalty": "subtracted from a token's logit for each occurrence",
    "presence_penalty": "subtracted from a token's logit after one occurrence",
    "samplers": "samplers that are left out are turned off; an order other than localspec's or llama.cpp's "
    "is refused",
    "seed": "the same seed gives the same text; -1: none",
    "stop": "texts before which the answer ends",
    "logit_bias": "token id, or text, and the number that is added to its logit; `false` bans it",
    "t_max_prompt_ms": "deadline until the first token; 0 and less: none",
    "t_max_predict_ms": "deadline from the first token on; 0 and less: none",
    "timings_per_token": "`timings` in every chunk of a stream",
    "return_progress": "`prompt_progress` in a stream while the prompt is read",
    # Of several addresses.
    "model": "a name of `localspec models list`; `localspec` or not set: the configured model",
    "name": "another name of `model`",
    "stream": "send the answer as it is made; Ollama's default is `true`",
    "stream_options": "`include_usage`: the usage in a last chunk",
    "max_tokens": "longest answer; less than 0: what the context leaves",
    "max_completion_tokens": "another name of `max_tokens`",
    "n_predict": "another name of `max_tokens`; it comes first",
    "n": "number of answers, at most 16 (8 to fill a gap)",
    "n_cmpl": "number of answers; it comes before `n`",
    "localspec": "options by localspec's own names: see [Settings](settings.md)",
    "logprobs": "probabilities of the tokens; for `/v1/completions` how many at each position; for "
    "`/completion` another name of `n_probs`",
    "top_logprobs": "with `logprobs`: how many of the most probable tokens at each position",
    "messages": "`role` is `system`, `developer`, `user` or `assistant`; `content` is text or text parts; "
    "`tool_calls`, `function_call` and `images` are refused",
    "prompt": "text to continue; `/v1/completions` and `/completion`: also tokens, and lists of prompts; "
    "`/infill`: the end of the prefix; Ollama: the question; without it the model is loaded or unloaded",
    "suffix": "text after the gap: the answer fills the gap between prompt and suffix",
    # OpenAI.
    "continue_final_message": "continue the last message, which must be the assistant's; also the default",
    "add_generation_prompt": "`true`: a new turn after a last message of the assistant; `false` only with "
    "`continue_final_message`",
    "chat_template_kwargs": "variables for the model's chat template",
    "echo": "repeat the prompt before the answer",
    "best_of": "try so many answers, return the `n` most probable; not in streams",
    # llama.cpp.
    "n_probs": "probabilities of so many tokens at each position",
    "response_fields": "only these fields of the answer; `/` separates the names of a path",
    "return_tokens": "ids of the tokens",
    "input_prefix": "text before the gap",
    "input_suffix": "text after the gap",
    "input_extra": "pieces of other files, the most important first",
    "n_indent": "end before a line with less indentation",
    "content": "text to tokenize",
    "add_special": "begin with the token that begins a text",
    "parse_special": "names of special tokens are those tokens",
    "with_pieces": "the text of each token",
    # Ollama.
    "options": "sampling fields, `num_predict` (longest answer) and `localspec`",
    "keep_alive": "how long the model stays loaded: seconds, or `5m`; -1: until it is unloaded; 0: unload",
    "truncate": "`true`: a chat longer than the context drops its oldest turns",
    "system": "system prompt",
    "raw": "continue the prompt without the chat template",
}
