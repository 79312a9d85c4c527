"""Client of a server with the interface of the OpenAI API: greedy answers, and the likely first tokens."""

import asyncio
import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from pine_engine.endpoint import ENDPOINT, NO_INTERNALS, NOT_GREEDY, is_greedy
from pine_engine.endpoint.failures import LIMIT, RefusalError, failure_of, refuses_limit
from pine_engine.endpoint.replies import Reply, parse_completion
from pine_engine.endpoint.requests import BYTES_PER_TOKEN, TextRequest
from pine_engine.endpoint.sending import Outcome, Sending
from pine_engine.endpoint.streams import stream_runs
from pine_engine.endpoint.text_layout import TextTokenizer, as_text, harmless
from pine_engine.engine.events import Event
from pine_engine.engine.order_results import OrderResult
from pine_engine.engine.orders import choose_orders
from pine_engine.engine.reordering import FirstPass, reorder_documents
from pine_engine.engine.run import MAX_NEW_TOKENS, MethodsLike, RunOptions
from pine_engine.errors import EndpointError, InputError
from pine_engine.input_validation import check_api_key
from pine_engine.methods.plan import check_scores
from pine_engine.methods.table import METHODS, Method, Output, Requirement, default_methods, get_methods
from pine_engine.optional_packages import import_extra
from pine_engine.prompts.chat_templates import KWARGS, ChatTemplateKwargs
from pine_engine.prompts.layout import TokenLayout, tokenize, tokenize_text
from pine_engine.prompts.prompt import Prompt
from pine_engine.scheduling.work import Work

if TYPE_CHECKING:
    import openai

SEED = 0  # of every request
NUM_ALTERNATIVES = 20  # maximum number of likely tokens in a request of the OpenAI API
MAX_RETRIES = 4  # of a request after a lost connection, a rate limit or an error of the server
TIMEOUT_S = 600.0  # seconds of a request, with its retries
CONNECT_S = 30.0  # seconds to connect
NO_KEY = "none"  # sent to servers that need no key
LIMIT_OF_REASONING = "max_completion_tokens"  # in place of LIMIT
REQUIRED = ("model", "messages", "prompt")  # fields that a request cannot lack


class Endpoint:
    """A model behind an address. It tokenizes text as bytes, because the server has the tokenizer."""

    dtype = "unknown"
    device = ENDPOINT
    revision = None
    invariance_warning = None
    max_context_length = None  # the server refuses a prompt that is too long
    active_prefixes = None
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
        check_api_key(api_key or NO_KEY, "OPENAI_API_KEY")
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
    def answer_warning(self) -> str | None:
        """Reason in a sentence if answers may change although the prompt does not, otherwise None."""
        return None if self.is_greedy else NOT_GREEDY

    @property
    def conditions(self) -> str:
        """Model, and what is sent to it, in words."""
        fields = {name: value for name, value in self.extra_body.items() if name != "temperature"}
        sent = f"; sent with each request: {json.dumps(fields, ensure_ascii=False)}" if fields else ""
        return f"{self.model_name}, behind an endpoint; {self.sampling}{sent}"

    @property
    def sampling(self) -> str:
        """Temperature of the requests, in words."""
        temperature = self.extra_body.get("temperature", 0)
        sent = "temperature not sent" if temperature is None else f"temperature {temperature}"
        return sent if self.is_greedy else f"{sent}, not greedy"

    def tokenize(self, prompt: Prompt | TokenLayout) -> TokenLayout:
        """Return a prompt as bytes, and as control tokens that begin its messages."""
        return prompt if isinstance(prompt, TokenLayout) else tokenize(prompt, self.tokenizer)

    def decode_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return no texts, because the server has the tokens."""
        return []

    def tokenize_answer(self, text: str) -> tuple[int, ...]:
        """Return the bytes of an answer."""
        return tokenize_text(text, self.tokenizer)

    def check_length(self, layout: TokenLayout, max_new_tokens: int) -> None:
        """Accept every length: the server refuses a prompt that is too long."""

    def bind_template_kwargs(self, kwargs: ChatTemplateKwargs) -> "tuple[Endpoint, ChatTemplateKwargs]":
        """Return the endpoint whose requests have arguments of the chat template, and none to render here."""
        other = copy(self)
        other.extra_body = self.extra_body | ({KWARGS: kwargs} if kwargs else {})
        return other, {}

    def run_bytes(
        self,
        layout: TokenLayout,
        methods: object,
        max_new_tokens: int,
        *,
        num_orders: int = 1,
        return_logits: bool = False,
    ) -> float:
        """Return the memory that a run takes here, in bytes: that of its texts."""
        return num_orders * layout.num_tokens

    @staticmethod
    def describe_prompts(work: Work) -> str:
        """Return the number of requests, and of their tokens, which are estimated, in words."""
        return work.describe_prompts("request", "about ")

    @staticmethod
    def misfit(need: Method | Output) -> str | None:
        """Return in a sentence why a method or output needs more than answers to texts, None if not."""
        if not isinstance(need, Method):
            return NO_INTERNALS
        if need.fits("texts"):
            return None
        if need.fits("passes"):
            return f"{need.name} needs the probabilities of all tokens, which a server does not return"
        return f"{need.name} changes attention or positions inside the model"

    @staticmethod
    def check_method(method: Method) -> None:
        """Raise InputError if the method needs more than answers to texts."""
        if reason := Endpoint.misfit(method):
            known = ", ".join(row.name for row in Endpoint.methods)
            raise InputError(f"{reason}; use a loaded model, or choose from: {known}", field="methods")

    def select_methods(self, methods: MethodsLike) -> tuple[Method, ...]:
        """Return the named methods, for None the default ones that need texts only.

        Raises InputError for an unknown name, and for a method that does not run on an endpoint.
        """
        selected = default_methods(self.meets) if methods is None else get_methods(methods)
        for method in selected:
            self.check_method(method)
        return selected

    def generate(
        self, prompt: Prompt | TokenLayout, **options: Unpack[RunOptions]
    ) -> Generator[Event, None, None]:
        """Answer a prompt under each method, and yield events; the last one is RunFinished with the texts.

        Closing the generator cancels the requests. A refused request has an answer with a `refusal`.
        """
        return _events(self.run_each([prompt], **options))

    def compare_orders(
        self,
        prompt: Prompt | TokenLayout,
        *,
        orders: Iterable[Sequence[int]] | None = None,
        **options: Unpack[RunOptions],
    ) -> Generator[Event | OrderResult, None, None]:
        """Answer a prompt in each document order, and yield events, with an OrderResult for each order.

        Texts are compared with the first answer of their method. A refused one has no comparison.
        """
        chosen = choose_orders(self.tokenize(prompt), orders)
        return _events(self.run_each([prompt], orders=[chosen], **options))

    def run_each(
        self,
        prompts: Sequence[Prompt | TokenLayout],
        *,
        orders: Sequence[Sequence[Sequence[int]]] | None = None,
        **options: Unpack[RunOptions],
    ) -> Generator[tuple[int, Event | OrderResult], None, None]:
        """Answer several prompts at the same time, and yield (index of the prompt, event).

        The options are `methods` and `max_new_tokens` of Engine.run.

        Raises:
            InputError: At the call, for a method or an option that needs more than answers to texts.
            EndpointError: As `send`.
        """
        methods = self.select_methods(options.pop("methods", None))
        max_new_tokens = options.pop("max_new_tokens", MAX_NEW_TOKENS)
        stop_at_eos = options.pop("stop_at_eos", True)
        if needed := [name for name, value in options.items() if value] or ["stop_at_eos"][stop_at_eos:]:
            raise InputError(f"{needed[0]} needs a loaded model. {NO_INTERNALS}", field=needed[0])
        layouts = list(map(self.tokenize, prompts))
        for layout in layouts:
            check_scores(layout, methods)
        chosen = None
        if orders is not None:
            chosen = [choose_orders(*each) for each in zip(layouts, orders, strict=True)]
        return stream_runs(self.send, layouts, chosen, methods, max_new_tokens)

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


def _events(pairs: Generator[tuple[int, Event | OrderResult], None, None]) -> Generator[Any, None, None]:
    """Yield the events of a single prompt."""
    with closing(pairs):
        for _, event in pairs:
            yield event
