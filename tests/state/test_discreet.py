"""Rows without their secrets, and a restore that writes the live values back."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.redact import Redactor
from replayproxy.core.values import RowChange, Rows
from replayproxy.state.discreet import DiscreetAside, discreet
from replayproxy.state.loader import Loaded
from replayproxy.state.provider import Changes, Reading, RestoreFailed

R = Redactor(b"k" * 32)


class Users:
    """A state in memory."""

    atomic, can_restore, scope = True, True, "instance"

    def __init__(self, rows: Rows) -> None:
        self.rows: Any = rows
        self.closed = False

    def capture(self) -> Reading:
        return Reading(rows=self.rows)

    def restore(self, rows: Rows) -> None:
        self.rows = rows

    def close(self) -> None:
        self.closed = True


class Kept(Users):
    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        self.rows, self.aside = rows, aside


def wrapped(users: Users, redactor: Redactor = R) -> Any:
    return discreet(Loaded.of("app", lambda: users), redactor).make({})


def token(text: str) -> str:
    return R.token(text.encode()).decode()


def test_columns_named_like_a_credential_are_tokens_and_the_rest_is_as_it_was() -> None:
    rows = {"users": {"1": {"name": "ann", "password": "s3cret", "n": 5, "url": "http://u:pw@h", "token": 7}}}
    assert wrapped(Users(rows)).capture().rows == {
        "users": {
            "1": {"name": "ann", "password": token("s3cret"), "n": 5, "url": f"http://u:{token('pw')}@h", "token": 7}
        }
    }


def test_changes_are_redacted_too() -> None:
    users = Users({})
    users.rows = Changes(rows=[RowChange(table="t", key="1", before=None, after={"sid": "abc"})])
    (change,) = wrapped(users).capture().rows.rows
    assert (change.before, change.after) == (None, {"sid": token("abc")})


def test_a_restore_writes_what_the_live_state_has_for_a_token() -> None:
    users = Users({"users": {"1": {"name": "ann", "password": "s3cret"}}})
    provider = wrapped(users)
    recorded = provider.capture().rows
    users.rows = {"users": {"1": {"name": "bob", "password": "s3cret"}, "2": {"name": "eve", "password": "x"}}}
    provider.restore(recorded)
    assert users.rows == {"users": {"1": {"name": "ann", "password": "s3cret"}}}
    assert provider.capture().rows == recorded


def test_a_secret_that_is_gone_fails_the_restore_and_nothing_is_written() -> None:
    users = Users({"users": {"1": {"password": "s3cret"}}})
    provider = wrapped(users)
    recorded = provider.capture().rows
    users.rows = {"users": {"1": {"password": "changed"}}}
    with pytest.raises(RestoreFailed, match=r"users/1/password holds a secret"):
        provider.restore(recorded)
    assert users.rows == {"users": {"1": {"password": "changed"}}}


def test_what_is_kept_aside_is_given_back_with_the_rows() -> None:
    users = Kept({"users": {"1": {"password": "s3cret"}}})
    provider = wrapped(users)
    assert isinstance(provider, DiscreetAside)
    provider.restore_whole(provider.capture().rows, {"a": {}})
    assert (users.rows, users.aside) == ({"users": {"1": {"password": "s3cret"}}}, {"a": {}})
    provider.close()
    assert users.closed


def test_with_the_secrets_kept_the_provider_is_as_it_was() -> None:
    users = Users({})
    assert wrapped(users, Redactor(None)) is users


class Document(Kept):
    """Keeps what it read a second time, as it came."""

    aside_is_the_rows = True
    told: Any = None

    def capture(self) -> Reading:
        return Reading(rows=self.rows if self.told is None else self.told, aside={"document": {"body": b"as it came"}})


def test_a_copy_of_the_rows_is_not_kept_aside_once_a_row_holds_a_secret() -> None:
    """The document that an http endpoint answered lay in the store as it came, passwords and all."""
    plain = {"users": {"1": {"name": "ann"}}}
    users = Document(plain)
    provider = wrapped(users)
    assert provider.capture().aside == {"document": {"body": b"as it came"}}
    users.rows = {"users": {"1": {"name": "ann", "password": "s3cret"}}}
    assert provider.capture().aside == {}
    users.told = Changes(rows=[RowChange(table="users", key="2", before=None, after={"name": "bob"})])
    assert provider.capture().aside == {}  # the first row is there still
    assert wrapped(Document(users.rows), Redactor(None)).capture().aside != {}
