"""Secrets, which are never stored, and ordinary code, which must be."""

from __future__ import annotations

import base64
import hashlib
import inspect
import random
import textwrap
import time
from importlib.resources import files
from pathlib import Path

import pytest

from localspec.memory.memory import Memory
from localspec.memory.ngrams import steps
from localspec.memory.secrets import WINDOW, secret_spans
from localspec.memory.table import TOKEN
from tests.memory.tables import FP, refuse, remember

B64 = base64.b64encode(hashlib.sha512(b"x").digest()).decode()
HEX = hashlib.sha1(b"x").hexdigest()
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + (B64[:64] + "\n") * 20 + "-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"

SECRETS = {
    "aws": ("aws configure set id {}", "AKIA" + "IOSFODNN7EXAMPLE"),
    "github": ("git clone https://x:{}@github.com/a/b", "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"),
    "github fine-grained": ("export GH={}", "github_pat_" + "11ABCDE0Y0abcdefghijkl_mnopqrstuvwxyz"),
    "slack": ("curl -d {}", "xoxb" + "-2345678901-abcdefghijkl"),
    "openai": ('client = OpenAI("{}")', "sk-" + "proj-abcdefghijklmnopqrstuvwx"),
    "stripe": ("{}", "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"),
    "google": ("maps({})", "AIza" + "SyDdI0hCZtE6vySjMm-WEfRq3CPzqKqqsHI"),
    "jwt": ("Authorization: {}", JWT),
    "bearer": ("Authorization: Bearer {}", "abcdef0123456789abcdef"),
    "pem": ("key = '''{}'''", PEM),
    "pem cut off": ("{}", PEM[:700]),
    "quoted password": ('password = "{}"', "correct horse"),
    "single quotes": ("db.connect(user='me', password='{}')", "hunter2"),
    "json": ('{{"client_secret": "{}"}}', "wenge3lm"),
    "env": ("DB_PASSWORD={}", "s3cr3t-value"),
    "yaml": ("  api_key: {}", "d41d8cd98f00b204e9800998ecf8427e"),
    "go": ('token := "{}"', "tok-12345"),
    "url": ("postgres://admin:{}@localhost/db", "pa55word"),
    "url with a slash": ("postgres://admin:{}@localhost/db", "pa/55word"),
    "url, short": ("amqp://guest:{}@rabbit", "Z9"),
    "url without a user": ("redis://:{}@cache:6379/0", "p4ssw0rd"),
    "url, an address as user": ("smtp://me@home.org:{}@mail", "p4ssw0rd"),
    "url, a token": ("git clone https://{}@example.org/a.git", "tok3n-of-mine"),
    "basic": ("Authorization: Basic {}", base64.b64encode(b"me:hunter2").decode()),
    "curl": ("curl -u {} https://example.org", "me:hunter2hunter2"),
    "gitlab runner": ("x {}", "glrt-" + "x2Vn7Kq9Lm4Rt8Yp3Zw6"),
    "age": ("{}", "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3JN54KHCE"),
    "digital ocean": ("{}", "dop_v1_" + hashlib.sha256(b"z").hexdigest()),
    "1password": ("see {} for it", "A3-" + "ASWWYB-798JRYLJVD4-23DC2-86TVM-H43EB"),
    "hexadecimal, with a prefix": ('connect("{}")', "shpat_" + hashlib.md5(b"s").hexdigest()),
    "a key of another name": ('const SNYK_KEY = "{}"', "12345678-ABCD-ABCD-ABCD-1234567890AB"),
    "authorization": ("curl -H 'Authorization: Token {}'", HEX),
    "a default": ('password: str = "{}"', "hunter2"),
    "random, small letters": ("x = f({})", "k3q9z7w2m5x8r1t6y4p0d3h7"),
    "random, with dashes": ("x = f({})", "va7wwy-h3vvtjlb_e38uo6gaxn08qvq8be8q9xe9y"),
    "random, after a long name": ("?authors_and_their_titles={}", B64[5:33]),
    "random": ("x = f({})", B64[:40]),
    "random, url-safe": ("session {}", base64.urlsafe_b64encode(hashlib.sha256(b"y").digest()).decode()[:43]),
}
ASSIGNMENTS = [
    '{}Token="{}"',
    "{}_token = {}",
    '{{"a.ini": "{}_TOKEN={}\\nBACKUP=true"}}',
    "<{}Token>\n    {}\n</Token>",
    "{}_token: '{}'",
    'string {}Token = "{}";',
    'var {}Token string = "{}"',
    "{}Token := `{}`",
    '${}Token .= "{}"',
    'System.setProperty("{}_TOKEN", "{}")',
    '  "{}Token" => "{}"',
    '{}_TOKEN ::= "{}"',
    '{}_TOKEN ?= "{}"',
]
ORDINARY = [
    "token = tokens[index]",
    "token = self.next_token()",
    "def f(token: int, password: str) -> None:",
    "secret = None",
    "password = getpass.getpass()",
    'token = os.environ["TOKEN"]',
    'password = "<your password>"',
    'api_key = "${API_KEY}"',
    "if token == end_token:",
    f"commit {HEX}",
    f"numpy-{HEX[:12]}.so, sha256-{HEX}, {HEX}.js",
    'def find(token: Token, key="by_name_of_2_or_3") -> None:',
    "<token>the_one_of_2</token> cache_key = 'users by id'",
    "utf8_to_utf16_and_h264_of_x86_64_machines = 0x9E3779B97F4A7C15",
    "uuid = 123e4567-e89b-12d3-a456-426614174000",
    "from localspec.memory.table import NgramTable, VeryLongClassNameOfAnAbstractFactoryBean",
    "/usr/local/lib/python3.11/site-packages/numpy/core/_multiarray_umath.cpython-311.so",
    "def test_that_something_works_in_3_of_4_cases_with_http2_and_utf8(self):",
    "https://docs.python.org/3/library/textwrap.html#textwrap.dedent",
    "SOME_VERY_LONG_CONSTANT_NAME_OF_2_WORDS = OTHER_CONSTANT_1",
    "0123456789012345678901234567890123456789",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "http://localhost:8080/a@b",
    "ssh://git@github.com/a/b.git and git@github.com:a/b.git",
    "basic authentication, Basic arithmetics of everything",
    "the secret of good code: simplicity",
    inspect.getsource(textwrap),
]


def hidden(text: str) -> str:
    """The text with its secrets as asterisks."""
    found = bytearray(text.encode())
    for spans in secret_spans(text.encode()):
        for start, end in spans:
            found[start:end] = b"*" * (end - start)
    return found.decode()


@pytest.mark.parametrize(("around", "secret"), SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("before", ["", "words and code\n" * 1000], ids=["alone", "far down"])
def test_secrets_are_found(around: str, secret: str, before: str) -> None:
    text = before + around.format(secret) + "\nand so on\n"
    left = hidden(text)
    assert secret not in left and secret[:12] not in left
    assert left.startswith(before) and left.endswith("\nand so on\n") or "pem cut" in text or "BEGIN" in text


@pytest.mark.parametrize("form", ASSIGNMENTS)
@pytest.mark.parametrize("secret", [HEX, "7h3kq2w9xv5m1", "qzkfjwpv-83nd_kqpx71"])
def test_a_value_of_a_token_is_found_in_any_language(form: str, secret: str) -> None:
    assert secret not in hidden("x = 1\n" + form.format("acme", secret) + "\nand so on\n")


@pytest.mark.parametrize("text", ORDINARY, ids=lambda text: text[:30])
def test_ordinary_text_stays(text: str) -> None:
    assert hidden(text) == text


def test_the_source_of_this_project_stays() -> None:
    root = Path(__file__).resolve().parents[2] / "localspec"
    texts = [path.read_text("utf-8") for path in root.rglob("*.py")]
    lost = sum(hidden(text).count("*") - text.count("*") for text in texts)
    assert lost < 0.001 * sum(map(len, texts))


def test_a_secret_on_the_seam_of_two_windows_is_found() -> None:
    for shift in range(-40, 40):
        text = "x" * (WINDOW + shift) + " password = 'hunter2 is it' \nmore\n" * 2
        assert "hunter2" not in hidden(text)


HOSTILE = {
    "addresses": "://" * 80_000,
    "tokens that do not end": "-eyJ" * 60_000,
    "tokens in addresses": "://aaaaaaaa" * 20_000,
    "keys": "eyJaaaaaaaa" * 20_000,
    "dashes": "-eyJaaaaaaaa" * 20_000,
    "dots": "eyJaaaaaaaa." * 20_000,
    "begins": "-----BEGIN PRIVATE KEY-----" * 8000,
    "half begins": "-----BEGIN A" * 20_000,
    "passwords": "password=" * 25_000,
    "spaces": "password" + " " * 200_000,
    "quotes": "password='" * 20_000,
    "colons": "://a:" * 40_000,
    "long": "aB3" * 70_000,
    "bearer": "bearer " * 30_000,
    "tokens": "sk-" * 70_000,
    "users": "://a@b@" * 30_000,
    "ports": "://a:80/" * 30_000,
    "basics": "basic " * 30_000,
    "names": "token, akey: " * 18_000,
    "types": "token: abcdefghij " * 14_000,
    "tags": "<token>\n" * 30_000,
    "curls": " -u a:" * 40_000,
    "dotted runs": ("a" * 14 + ".") * 16_000,
    "prefixed": "ab-" * 80_000,
    "hexadecimal": "0xabcdef12_" * 22_000,
    "turns": "a1_" * 80_000,
    "noise": random.Random(1).randbytes(200_000).decode("latin-1"),
}


def test_tokens_that_touch_a_secret_are_neither_context_nor_continuation() -> None:
    text = "a b c d e f password='hunter2' g h i j k l m n\n" * 3
    pieces = [text[i : i + 2].encode() for i in range(0, len(text), 2)]
    secret = {i for i, piece in enumerate(pieces) if any(c in b"hunter2" for c in piece)}
    taught: set[int] = set()
    for grams in steps(range(len(pieces)), pieces.__getitem__):
        for each in grams:
            taught.update(each.tokens.tolist())
    start = text.index("hunter2") // 2
    touched = set(range(start, (text.index("hunter2") + 6) // 2 + 1))
    assert touched <= secret and not touched & taught
    # The three tokens after a secret have too short a context.
    assert not {max(touched) + n for n in (1, 2, 3)} & taught and max(touched) + 4 in taught


def test_a_secret_never_reaches_the_disk_not_even_hashed(tmp_path: Path) -> None:
    text = "first words, then password='hunter2 is not it' and then more of the usual words"
    vocabulary = [bytes([byte]) for byte in range(256)]
    memory = Memory(tmp_path, FP, vocabulary.__getitem__, notice=refuse)
    remember(memory, list(text.encode()))
    (table,) = memory.tables(None)
    kept = [int(value) & TOKEN for value in table._words()[1::2] if value]
    at = text.index("hunter2"), text.index("' and")
    expected = sum(max(0, length - n) for length in (at[0], len(text) - at[1]) for n in (16, 8, 5, 3))
    assert len(kept) <= expected and ord("2") not in kept
    memory.close()


def test_the_list_of_names_comes_with_its_licence() -> None:
    licence = (files("localspec.memory") / "known" / "LICENSE.gitrob").read_text("utf-8")
    assert "MIT" in licence and "Copyright (c)" in licence


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_longest_step_is_short_whatever_the_text(text: str) -> None:
    """An engine's thread takes one at a time. What happens beside it costs some of the tries, not all."""
    list(secret_spans(text.encode()))
    assert min(longest_step(text.encode()) for _ in range(3)) < 0.01


def longest_step(text: bytes) -> float:
    """Seconds of computing."""
    longest, looking, found = 0.0, secret_spans(text), True
    while found:
        began = time.thread_time()
        found = next(looking, None) is not None
        longest = max(longest, time.thread_time() - began)
    return longest
