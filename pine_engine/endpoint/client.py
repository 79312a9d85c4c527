"""Client of a server with the interface of the OpenAI API: greedy answers, and the likely first tokens."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from pine_engine.endpoint import ENDPOINT, is_greedy
from pine_engine.endpoint.failures import LIMIT, RefusalError, failure_of, refuses_limit
from pine_engine.endpoint.replies import Reply, parse_completion
from pine_engine.endpoint.sending import Outcome, Sending
from pine_engine.endpoint.text_layout import TextTokenizer, as_text, harmless
from pine_engine.engine.reordering import FirstPass, reorder_documents
from pine_engine.errors import EndpointError, InputError, import_extra
from pine_engine.input_validation import check_api_key
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
TIMEOUT_S = 600.0  # seconds of a request, with its retries
CONNECT_S = 30.0  # seconds to connect
BYTES_PER_TOKEN = 4  # of English text, for estimates
NO_KEY = "none"  # sent to servers that need no key
LIMIT_OF_REASONING = "max_completion_tokens"  # in place of LIMIT
REQUIRED = ("model", "messages", "prompt")  # fields that a request cannot lack


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
            extra_body: Further fields of each request, such as {"repeat_penalty": 1.0}. None leaves a field
                out, such as {"temperature": None} for models that refuse it.
            model_ref: Name of the address in messages and records. Default: url.

        Raises:
            InputError: For an address that is not one of the web, or that contains a password or a query; for
                a field that no request can lack; for a key that no HTTP header can contain.
        """
        self._openai: Any = import_extra("openai", "openai")
        import httpx2  # a dependency of openai

        try:
            parts = httpx2.URL(url)
        except httpx2.InvalidURL:
            parts = httpx2.URL()
        if parts.scheme not in ("http", "https") or not parts.host:
            expected = "expected one such as http://127.0.0.1:8000/v1"
            raise InputError(f"invalid endpoint: got {url!r:.80}, {expected}", field="endpoint")
        if parts.userinfo or parts.query or parts.fragment:
            message = "invalid endpoint: the address contains a user, a password or a query"
            raise InputError(f"{message}; give the key in OPENAI_API_KEY", field="endpoint")
        if removed := [name for name in REQUIRED if extra_body and name in extra_body]:
            message = f"invalid extra body: {removed[0]} is the field of a request that is measured"
            raise InputError(f"{message}. Remove it from the extra body.", field="extra_body")
        check_api_key(api_key or "", "OPENAI_API_KEY")
        self._url = url.rstrip("/")
        self.model_ref = model_ref or self._url
        self.model_name = model
        self.max_concurrency = max_concurrency
        self.extra_body = dict(extra_body or {})
        self._api_key = api_key or NO_KEY
        self._limit = [LIMIT]  # field of the maximum length that the server accepts; shared by copies

    def __repr__(self) -> str:
        return f"Endpoint({self.model_ref}, {self.model_name})"

    @property
    def is_greedy(self) -> bool:
        """True if every request has temperature 0, without which answers are sampled."""
        return is_greedy(self.extra_body)

    @property
    def sampling(self) -> str:
        """Temperature of the requests, in words."""
        temperature = self.extra_body.get("temperature", 0)
        sent = "temperature not sent" if temperature is None else f"temperature {temperature}"
        return sent if self.is_greedy else f"{sent}, not greedy"

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

        At most `max_concurrency` requests are active; closing the generator cancels them. A refused request
        has a reply with an error, unless the server refuses a harmless prompt, too. After a failure of all
        requests, the answers to the active ones are yielded before it is raised.

        Args:
            requests: Requests, which are taken when they can be sent.
            check: Called several times per second; an exception stops the requests.

        Raises:
            EndpointError: The server cannot be reached, refuses all requests, or does not answer as the
                OpenAI API does.
        """
        with Sending(self.model_ref, self._client(), self._answer, self._probe, check) as sending:
            for request, outcome in sending.outcomes(requests, self.max_concurrency):
                yield request, Reply(error=str(outcome)) if isinstance(outcome, RefusalError) else outcome

    def _client(self) -> "openai.AsyncOpenAI":
        import httpx2

        from pine_engine.endpoint.transport import limit_response

        hook = partial(limit_response, names_target=self.model_ref == self._url)
        client: openai.AsyncOpenAI = self._openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._api_key,
            max_retries=MAX_RETRIES,
            timeout=httpx2.Timeout(TIMEOUT_S, connect=min(CONNECT_S, TIMEOUT_S)),
            default_headers={"Accept-Encoding": "identity"},
            http_client=self._openai.DefaultAsyncHttpxClient(event_hooks={"response": [hook]}),
        )
        return client

    async def _answer(self, client: "openai.AsyncOpenAI", request: TextRequest) -> Outcome:
        """Return the reply to a request, which is sent again if it is repeated; the refusal if it is refused.

        Raises EndpointError for a failure of all requests.
        """
        try:
            reply = await self._complete(client, request)
        except RefusalError as refusal:
            return refusal
        if request.is_repeated:
            with suppress(EndpointError):  # the answer is kept; the next request has the same failure
                again = await self._complete(client, request)
                return replace(reply, is_repeatable=again.found.text == reply.found.text)
        return reply

    async def _probe(self, client: "openai.AsyncOpenAI", request: TextRequest) -> RefusalError | None:
        """Return the refusal of a harmless prompt in the form of a request, None for an answer.

        Raises EndpointError for a failure of all requests.
        """
        try:
            await self._complete(client, replace(request, layout=harmless(request.layout)))
        except RefusalError as refusal:
            return refusal
        return None

    async def _complete(self, client: "openai.AsyncOpenAI", request: TextRequest) -> Reply:
        """Send one request. Raises an EndpointError, in whose words the key is masked."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reply = parse_completion(await self._post_with_limit(client, self._fields(request)))
            if request.has_logprobs and reply.first_logprobs is None:
                message = "the server returned no log-probabilities"
                raise RefusalError(f"{message}; use generated answers, or another server")
            return replace(reply, seconds=time.perf_counter() - began)
        except RefusalError as refusal:
            failure: EndpointError = refusal
        except (self._openai.OpenAIError, TimeoutError, RecursionError) as error:
            failure = failure_of(
                error, model_name=self.model_name, max_retries=MAX_RETRIES, timeout_s=TIMEOUT_S
            )
        message = str(failure)
        if self._api_key != NO_KEY:  # some servers repeat the key
            message = message.replace(self._api_key, "...")
        if isinstance(failure, RefusalError):
            raise RefusalError(message, status=failure.status, is_timeout=failure.is_timeout) from failure
        raise EndpointError(f"{self.model_ref} {message}", field=failure.field) from failure

    def _fields(self, request: TextRequest) -> dict[str, Any]:
        """Return the fields of a request: a chat, or plain text for a task without chat template."""
        prompt = as_text(reorder_documents(request.layout, request.method, _NO_PASS))
        limit = {} if self.extra_body.get(LIMIT_OF_REASONING) else {self._limit[0]: request.max_new_tokens}
        fields = {"model": self.model_name, **limit, "temperature": 0, "seed": SEED}
        if isinstance(prompt, str):
            fields |= {"prompt": prompt} | ({"logprobs": NUM_ALTERNATIVES} if request.has_logprobs else {})
        else:
            likely = {"logprobs": True, "top_logprobs": NUM_ALTERNATIVES} if request.has_logprobs else {}
            fields |= {"messages": prompt, **likely}
        return {name: value for name, value in (fields | self.extra_body).items() if value is not None}

    async def _post_with_limit(self, client: "openai.AsyncOpenAI", fields: dict[str, Any]) -> bytes:
        """Send a request; once more with max_completion_tokens if the server refuses max_tokens."""
        try:
            return await _post(client, fields)
        except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as error:
            if LIMIT not in fields or LIMIT in self.extra_body or not refuses_limit(error):
                raise
            renamed = {LIMIT_OF_REASONING if name == LIMIT else name: fields[name] for name in fields}
            try:
                body = await _post(client, renamed)
            except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as second:
                raise (error if refuses_limit(second) else second) from None
            self._limit[0] = LIMIT_OF_REASONING
            return body


async def _post(client: "openai.AsyncOpenAI", fields: dict[str, Any]) -> bytes:
    """Return the body of the response to a request with these fields."""
    places: dict[str, Any] = {"prompt": client.completions, "messages": client.chat.completions}
    ((name, place),) = ((name, place) for name, place in places.items() if name in fields)
    required = {key: fields[key] for key in ("model", name)}
    others = {key: value for key, value in fields.items() if key not in required}
    response = await place.with_raw_response.create(**required, extra_body=others)
    content: bytes = response.http_response.content
    return content


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
