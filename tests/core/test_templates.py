from __future__ import annotations

import pytest

from replayproxy.core.templates import request_template, template_of
from replayproxy.testing import request


@pytest.mark.parametrize(
    ("target", "template"),
    [
        (b"/deals/42?open=1", "/deals/{id}"),
        (b"/deals/3f2c8a10-aaaa-4bbb-8ccc-1234567890ab/notes", "/deals/{id}/notes"),
        (b"/users/me", "/users/me"),
        (b"/users/search", "/users/search"),
        (b"/v1/deals", "/v1/deals"),
        (b"/files/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/files/{id}"),
        (b"/c/4f1c2b7a9d3e", "/c/{id}"),
        (b"/c/defaced", "/c/defaced"),
        (b"/day/2026-11-29", "/day/{id}"),
        (b"/u/ann%40example.org", "/u/{id}"),
        (b"/d/D-9f41", "/d/{id}"),
        (b"/d/D-8", "/d/{id}"),
        (b"/slots/S-1-9/book", "/slots/{id}/book"),
        (b"/d/read-add", "/d/read-add"),
        (b"/", "/"),
        (b"//x//", "//x//"),
        (b"/caf\xe9", "/caf\\xe9"),
    ],
)
def test_segments_that_name_one_of_many_are_parameters(target: bytes, template: str) -> None:
    assert template_of(target) == template


def test_a_template_names_the_method() -> None:
    assert request_template(request("PUT", "/deals/42")) == "PUT /deals/{id}"
