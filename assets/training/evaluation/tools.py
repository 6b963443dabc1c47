"""Calls of invented tools of another draw, and of plain ones that training never listed."""

import json
import random
from typing import Any, NamedTuple

from ..chat import format_prompt
from ..tools import Json, Tool, ToolMaker, call_text, result_prompt, system_turn
from .answers import Answerer, Scores

ANSWER_TOKENS = 160


class ToolTask(NamedTuple):
    """A request with the tools offered, and the right call."""

    tools: list[Tool]
    request: str
    tool: Tool
    arguments: Json


WEATHER = Tool("get_weather", "get the weather", {"city": "string"})
READ = Tool("read_file", "read a file", {"path": "string"})
ADD = Tool("add_numbers", "add two numbers", {"first": "integer", "second": "integer"})
SEARCH = Tool("search_web", "search the web", {"query": "string"})
TIMER = Tool("start_timer", "start a timer", {"minutes": "integer"})
LIGHT = Tool("switch_light", "switch the light", {"room": "string", "on": "boolean"})
PLAIN_TASKS = (
    ToolTask([WEATHER], "Get the weather for the city Paris.", WEATHER, {"city": "Paris"}),
    ToolTask([WEATHER, READ], "Read a file with path notes.txt.", READ, {"path": "notes.txt"}),
    ToolTask([READ, ADD], "Please add two numbers, first 3, second 5", ADD, {"first": 3, "second": 5}),
    ToolTask([SEARCH, TIMER], "Start a timer with minutes 10.", TIMER, {"minutes": 10}),
    ToolTask([SEARCH], 'Search the web for the query "bread".', SEARCH, {"query": "bread"}),
    ToolTask([LIGHT, TIMER], "Switch the light, room hall, on true.", LIGHT, {"room": "hall", "on": True}),
    ToolTask(
        [ADD, LIGHT], "Switch the light with room loft (on: false)", LIGHT, {"room": "loft", "on": False}
    ),
    ToolTask([WEATHER, SEARCH, READ], "What is the weather in Berlin?", WEATHER, {"city": "Berlin"}),
    ToolTask([READ], "Show me README.md", READ, {"path": "README.md"}),
    ToolTask([TIMER, WEATHER], "Set a timer for 5 minutes", TIMER, {"minutes": 5}),
)


def invented_tool_tasks(count: int, words: list[str], seed: int) -> list[ToolTask]:
    """Requests for one of one to three tools that are made as training's are, of another draw."""
    rng = random.Random(f"tool tasks {seed}")
    maker = ToolMaker(words, rng)
    tasks = []
    for _ in range(count):
        offered = [maker.tool() for _ in range(rng.randint(1, 3))]
        tool = rng.choice(offered)
        arguments = {name: maker.value(kind) for name, kind in tool.parameters.items()}
        tasks.append(ToolTask(offered, maker.request(tool, arguments), tool, arguments))
    return tasks


def parsed_call(text: str) -> Any:
    """The call's object; None where the text is no call."""
    body = text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    try:
        return json.loads(body)
    except ValueError:
        return None


def score_calls(model: Answerer, tasks: list[ToolTask]) -> dict[str, Any]:
    """Shares of exact calls, of valid ones, and of answers that ended."""
    scores = Scores("exact", "valid", "ended")
    for task in tasks:
        given = model.complete(system_turn(task.tools) + format_prompt(task.request), ANSWER_TOKENS)
        right = {"name": task.tool.name, "arguments": task.arguments}
        call = parsed_call(given.text)
        valid = isinstance(call, dict) and call.keys() == right.keys()
        example = {"request": task.request, "answer": given.text, "right": right}
        scores.add(example, call == right, valid, given.ended)
    return scores.figures()


def score_results(model: Answerer, tasks: list[ToolTask], words: list[str], seed: int) -> dict[str, Any]:
    """The share of answers that tell a tool's result exactly."""
    maker = ToolMaker(words, random.Random(f"tool results {seed}"))
    scores = Scores("exact", "ended")
    for task in tasks:
        result, told = maker.result()
        called = format_prompt(task.request) + call_text(task.tool.name, task.arguments) + "<|im_end|>\n"
        prompt = system_turn(task.tools) + called + result_prompt(result)
        given = model.complete(prompt, ANSWER_TOKENS)
        scores.add({"result": result, "answer": given.text, "right": told}, given.text == told, given.ended)
    return scores.figures()
