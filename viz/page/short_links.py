"""Short links: sessions that the server keeps for a day, for a QR code that phones read from a projector."""

import hashlib
import secrets
import threading
import time
from functools import lru_cache

from pine_engine.errors import InputError
from viz.page.serving.address_limits import MAX_ADDRESSES, TokenBucket

KEPT_S = 86_400.0  # seconds after which an unused session is removed
MAX_LINKS, MAX_BYTES = 2_000, 16_000_000  # of all sessions
MAX_OF_ADDRESS = 100  # new sessions of one address in this time
SIGNS = "abcdefghjkmnpqrstuvwxyz23456789"  # of an id; none is read as another one
ID_LENGTH = 10


class ShortLinks:
    """Sessions as codes of `to_code` by a short id, which cannot be guessed."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[float, str]] = {}  # with the time of the last use, the oldest first
        self._secret, self._lock = secrets.token_bytes(16), threading.Lock()
        self._limit_of = lru_cache(MAX_ADDRESSES)(lambda _: TokenBucket(MAX_OF_ADDRESS, KEPT_S))

    def keep(self, code: str, address: str) -> str:
        """Keep a session for a day, and return its id. Raises InputError if there is no room."""
        name = self._name(code)
        with self._lock:
            self._remove_expired()
            if self._codes.pop(name, None) is None:
                num_bytes = len(code) + sum(len(kept) for _, kept in self._codes.values())
                if len(self._codes) >= MAX_LINKS or num_bytes > MAX_BYTES or self._limit_of(address).take():
                    raise InputError("Too many short links are in use. Use “Copy link”.")
            self._codes[name] = time.monotonic(), code
        return name

    def find(self, linked: str) -> str:
        """Return the code of a link, which has an id or the code. Raises InputError for an unknown id."""
        if len(linked) != ID_LENGTH or not set(linked) <= set(SIGNS):
            return linked
        with self._lock:
            self._remove_expired()
            if linked not in self._codes:
                raise InputError("Unknown or expired link: a short link works for a day. Ask for a new one.")
            return self._codes[linked][1]

    def _name(self, code: str) -> str:
        digest = hashlib.blake2b(code.encode(), key=self._secret, digest_size=16).digest()
        number, signs = int.from_bytes(digest), ""
        for _ in range(ID_LENGTH):
            number, sign = divmod(number, len(SIGNS))
            signs += SIGNS[sign]
        return signs

    def _remove_expired(self) -> None:
        before = time.monotonic() - KEPT_S
        for name in [name for name, (used_at, _) in self._codes.items() if used_at < before]:
            del self._codes[name]
