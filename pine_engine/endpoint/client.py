"""Client of a server with the interface of the OpenAI API: greedy answers, and the likely first tokens."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice, product
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from pine_engine.endpoint import ENDPOINT
from pine_engine.endpoint.replies import UNREADABLE, Reply, read_completion
from pine_engine.endpoint.text_layout import TextTokenizer, as_text
from pine_engine.engine.reordering import FirstPass, reorder_documents
from pine_engine.errors import EndpointError, InputError, import_extra, one_line
from pine_engine.methods.table import METHODS, Method, Requirement, default_methods, get_methods
from pine_engine.prompts.chat_templates import KWARGS, ChatTemplateKwargs
from pine_engine.prompts.layout import TokenLayout, tokenize, tokenize_text
from pine_engine.prompts.orders import Order
from pine_engine.prompts.prompt import Prompt

if TYPE_CHECKING:
    import openai

SEED = 0  # of every request
NUM_ALTERNATIVES = 20  # maximum number of likely tokens in a request of the OpenAI API
MAX_RETRIES = 4  # of a request after a lost connection, a rate limit or an error of the server
TIMEOUT_S = 600.0  # seconds without a byte of the answer
POLL_S = 0.1  # seconds between two checks whether the run was stopped
BYTES_PER_TOKEN = 4  # of English text, for estimates
MAX_MESSAGE = 200  # characters of a message of the server that are quoted
NO_KEY = "none"  # sent to servers that need no key


@dataclass(frozen=True, eq=False)
class TextRequest:
    """One prompt to a server.

    Attributes:
        layout: Prompt of `Endpoint.tokenize`, with the documents in the order that is evaluated.
        method: Method, which may reorder the documents.
        max_new_tokens: Limit of the answer, in tokens.
        has_logprobs: True to request the likely first tokens with their log-probabilities.
        is_repeated: True to send the request twice, and to compare the answers.
    """

    layout: TokenLayout
    method: Method
    max_new_tokens: int
    has_logprobs: bool = False
    is_repeated: bool = False


class Endpoint:
    """A model behind an address. It tokenizes text as bytes, because the server has the tokenizer."""

    dtype = "unknown"
    device = ENDPOINT
    revision = None
    invariance_warning = None
    max_context_length = None  # the server refuses a prompt that is too long
    meets: Requirement = "texts"
    methods = tuple(method for method in METHODS.values() if method.fits("texts"))
    ids_per_token = BYTES_PER_TOKEN
    tokenizer = TextTokenizer()

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        max_concurrency: int = 4,
        extra_body: Mapping[str, Any] | None = None,
        model_ref: str | None = None,
    ) -> None:
        """Check the address; nothing is sent.

        Args:
            url: Address of the API, which usually ends with /v1.
            model: Name of the model on the server.
            api_key: Key, which is sent to the server and stored nowhere. Default: none.
            max_concurrency: Maximum number of requests at the same time.
            extra_body: Further fields of each request, such as {"repeat_penalty": 1.0}.
            model_ref: Name of the address in messages and records. Default: url.

        Raises:
            InputError: For an address that is not one of the web, or that contains a password or a query.
        """
        self._openai: Any = import_extra("openai", "openai")
        import httpx  # a dependency of openai

        try:
            parts = httpx.URL(url)
        except httpx.InvalidURL:
            parts = httpx.URL()
        if parts.scheme not in ("http", "https") or not parts.host:
            expected = "expected one such as http://127.0.0.1:8000/v1"
            raise InputError(f"invalid endpoint: got {url!r:.80}, {expected}", field="endpoint")
        if parts.userinfo or parts.query or parts.fragment:
            message = "invalid endpoint: the address contains a user, a password or a query"
            raise InputError(f"{message}; give the key in OPENAI_API_KEY", field="endpoint")
        self._url = url.rstrip("/")
        self.model_ref = model_ref or self._url
        self.model_name = model
        self.max_concurrency = max_concurrency
        self.extra_body = dict(extra_body or {})
        self._api_key = api_key or NO_KEY

    def __repr__(self) -> str:
        return f"Endpoint({self.model_ref}, {self.model_name})"

    def tokenize(self, prompt: Prompt) -> TokenLayout:
        """Return a prompt as bytes, and as control tokens that begin its messages."""
        return tokenize(prompt, self.tokenizer)

    def tokenize_answer(self, text: str) -> tuple[int, ...]:
        """Return the bytes of an answer."""
        return tokenize_text(text, self.tokenizer)

    def check_length(self, layout: TokenLayout, max_new_tokens: int) -> None:
        """Accept every length: the server refuses a prompt that is too long."""

    def with_template_kwargs(self, kwargs: ChatTemplateKwargs) -> "Endpoint":
        """Return the endpoint with arguments of the chat template, which the server renders."""
        other = copy(self)
        other.extra_body = self.extra_body | ({KWARGS: kwargs} if kwargs else {})
        return other

    def run_bytes(self, layout: TokenLayout, methods: object, max_new_tokens: int) -> float:
        """Return the memory that a run takes here, in bytes: that of its text."""
        return layout.num_tokens

    @staticmethod
    def misfit(method: Method) -> str | None:
        """Return in a sentence why the method needs more than answers to texts, None if it does not."""
        if method.fits("texts"):
            return None
        if method.fits("passes"):
            return f"{method.name} needs the probabilities of all tokens, which a server does not return"
        return f"{method.name} changes attention or positions inside the model"

    @staticmethod
    def check_method(method: Method) -> None:
        """Raise InputError if the method needs more than answers to texts."""
        if reason := Endpoint.misfit(method):
            known = ", ".join(row.name for row in Endpoint.methods)
            raise InputError(f"{reason}; use a loaded model, or choose from: {known}", field="methods")

    def select_methods(self, methods: Sequence[str] | None) -> tuple[Method, ...]:
        """Return the named methods, for None the default ones that need texts only.

        Raises InputError for an unknown name, and for a method that does not run on an endpoint.
        """
        selected = default_methods(self.meets) if methods is None else get_methods(methods)
        for method in selected:
            self.check_method(method)
        return selected

    def send(
        self, requests: Iterable[TextRequest], check: Callable[[], None] = lambda: None
    ) -> Generator[tuple[TextRequest, Reply], None, None]:
        """Yield the requests with their replies, in the order in which they arrive.

        At most `max_concurrency` requests are active; closing the generator cancels them.

        Args:
            requests: Requests, which are taken when they can be sent.
            check: Called several times per second; an exception stops the requests.

        Raises:
            EndpointError: The server cannot be reached, or does not answer as the OpenAI API does.
        """
        remaining = iter(requests)
        active: dict[asyncio.Task[Reply], TextRequest] = {}
        with asyncio.Runner() as runner, ExitStack() as closing:
            client = self._openai.AsyncOpenAI(
                base_url=self._url, api_key=self._api_key, max_retries=MAX_RETRIES, timeout=TIMEOUT_S
            )
            closing.callback(lambda: runner.run(_cancel(active, client)))
            loop = runner.get_loop()
            while True:
                for request in islice(remaining, self.max_concurrency - len(active)):
                    active[loop.create_task(self._answer(client, request))] = request
                if not active:
                    return
                check()
                done, _ = runner.run(_wait(active))
                for task in done:
                    yield active.pop(task), task.result()

    async def _answer(self, client: "openai.AsyncOpenAI", request: TextRequest) -> Reply:
        """Return the reply to a request, which is sent again if it is repeated."""
        try:
            reply = await self._complete(client, request)
            if not request.is_repeated:
                return reply
            again = await self._complete(client, request)
            return replace(reply, is_repeatable=again.found.text == reply.found.text)
        except self._openai.OpenAIError as error:
            problem = self._problem(error)
            if isinstance(problem, InputError):
                return Reply(error=str(problem))
            raise problem from error

    async def _complete(self, client: "openai.AsyncOpenAI", request: TextRequest) -> Reply:
        """Send one request: a chat, or plain text for a task without chat template."""
        began = time.perf_counter()
        prompt = as_text(reorder_documents(request.layout, request.method, _NO_PASS))
        options: dict[str, Any] = {
            "model": self.model_name,
            "max_tokens": request.max_new_tokens,
            "temperature": 0,
            "seed": SEED,
            "extra_body": self.extra_body,
        }
        create: Callable[..., Any]
        if isinstance(prompt, str):
            create, options["prompt"] = client.completions.create, prompt
            options |= {"logprobs": NUM_ALTERNATIVES} if request.has_logprobs else {}
        else:
            create, options["messages"] = client.chat.completions.create, prompt
            options |= {"logprobs": True, "top_logprobs": NUM_ALTERNATIVES} if request.has_logprobs else {}
        try:
            reply = replace(read_completion(await create(**options)), seconds=time.perf_counter() - began)
        except UNREADABLE as error:
            message = f"{self.model_ref} does not answer as the OpenAI API does ({one_line(error)})"
            advice = "check the address, which usually ends with /v1"
            raise EndpointError(f"{message}; {advice}", field="endpoint") from error
        if request.has_logprobs and reply.first_logprobs is None:
            message = f"{self.model_ref} returned no log-probabilities"
            raise EndpointError(f"{message}; use generated answers, or another server", field="endpoint")
        return reply

    def _problem(self, error: Any) -> InputError | EndpointError:
        """Return an error of the client as a sentence, InputError if it concerns a single prompt."""
        body = getattr(error, "body", None)
        stated = str(body.get("message", error) if isinstance(body, dict) else error)
        if self._api_key != NO_KEY:  # some servers repeat the key
            stated = stated.replace(self._api_key, "...")
        stated = shorten(stated, MAX_MESSAGE, placeholder=" ...")
        match error:
            case self._openai.BadRequestError() if "context" in f"{error.code} {stated}".lower():
                return InputError(f"the prompt is too long for {self.model_name}: {stated}", field="prompt")
            case self._openai.APITimeoutError():
                problem = f"did not answer within {TIMEOUT_S:g} s; use a faster server or shorter answers"
            case self._openai.APIConnectionError():
                reason = one_line(error.__cause__ or error)
                problem = f"cannot be reached ({reason}); check that the server runs"
            case self._openai.AuthenticationError() | self._openai.PermissionDeniedError():
                problem = f"refuses the key (status {error.status_code}); set OPENAI_API_KEY to a valid one"
            case self._openai.NotFoundError():
                advice = "check --model, and the address, which usually ends with /v1"
                problem = f"has no model {self.model_name!r} (status 404: {stated}); {advice}"
            case self._openai.RateLimitError():
                problem = f"still limits the rate after {MAX_RETRIES} retries ({stated}); try again later"
            case self._openai.APIStatusError():
                problem = f"refuses a request (status {error.status_code}): {stated}"
            case _:
                problem = f"does not answer as the OpenAI API does ({stated})"
        return EndpointError(f"{self.model_ref} {problem}", field="endpoint")


async def _cancel(tasks: Iterable[asyncio.Task[Reply]], client: "openai.AsyncOpenAI") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


async def _wait(tasks: Iterable[asyncio.Task[Reply]]) -> tuple[set[asyncio.Task[Reply]], Any]:
    return await asyncio.wait(tasks, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)


def _run_no_pass(*_: Any) -> Any:
    raise AssertionError("a method of text has no first pass")


_NO_PASS = FirstPass(_run_no_pass)


def text_requests(
    layout: TokenLayout, methods: Sequence[Method], max_new_tokens: int, orders: Sequence[Order] | None = None
) -> list[TextRequest]:
    """Return a request for each document order and method; the first of several is repeated."""
    layouts = [layout] if orders is None else list(map(layout.reorder, orders))
    first, *others = product(layouts, methods)
    return [
        TextRequest(*first, max_new_tokens, is_repeated=bool(others)),
        *(TextRequest(*each, max_new_tokens) for each in others),
    ]


def describe_requests(requests: Iterable[TextRequest]) -> str:
    """Return the number of requests and of their tokens, estimated from their bytes, in a sentence."""
    num_requests = num_repeated = num_bytes = num_answer_tokens = 0
    for request in requests:
        count = 1 + request.is_repeated
        num_requests += count
        num_repeated += request.is_repeated
        num_bytes += count * request.layout.num_tokens
        num_answer_tokens += count * request.max_new_tokens
    return (
        f"requests: {num_requests:,}, of which {num_repeated:,} repeat another; about "
        f"{num_bytes // BYTES_PER_TOKEN:,} tokens of prompts, up to {num_answer_tokens:,} of answers"
    )
