"""Names that are like a credential's, and those that only look so; credentials in what somebody typed."""

from __future__ import annotations

import json

import pytest

from replayproxy.core.redact import Redactor
from replayproxy.core.secretnames import is_secret_name, may_be_named

R = Redactor(b"k" * 32)

SECRET = (
    "password passwords token tokens secrets api_keys apiKeys access_tokens cookies credential credentials pwd bearer"
    " hf_token openai_token any_token any_secret any_password github_pat githubPat ssh_key sshKey encryption_key"
    " private_key license_key session_key signing_key otp totp mfa_code mfaCode verification_code connection_string"
    " ConnectionString pass db_pass auth dsn X-Amz-Signature X-Goog-Signature signatures session_ids authtoken"
)
PLAIN = (
    "max_tokens maxTokens prompt_tokens completion_tokens cache_creation_input_tokens total_tokens token_type"
    " token_count tokens_used next_page_token nextPageToken NextToken progressToken sync_token eos_token lock_token"
    " key keys primary_key public_key account_key session pin code status_code zip_code path compass author passed"
    " boarding_pass database_url sas_url hotplug desktop"
)


@pytest.mark.parametrize("name", SECRET.split())
def test_a_string_or_a_list_under_such_a_name_is_replaced(name: str) -> None:
    assert is_secret_name(name)
    assert may_be_named(name)
    made = json.loads(R.text(json.dumps({name: "hunter2x", "a": {name: ["hunter3x", 5, "hunter4x"]}})))
    one, two, three = (R.text(json.dumps({"password": f"hunter{n}x"}))[14:-2] for n in (2, 3, 4))
    assert made == {name: one, "a": {name: [two, 5, three]}}


@pytest.mark.parametrize("name", SECRET.split())
def test_numbers_under_it_stay(name: str) -> None:
    text = json.dumps({name: 512, "b": {name: [1, True, None]}})
    assert R.text(text) == text


@pytest.mark.parametrize("name", PLAIN.split())
def test_what_only_looks_like_one_stays(name: str) -> None:
    assert not is_secret_name(name)
    text = json.dumps({name: "hunter2x", "a": {name: ["hunter3x"]}})
    assert R.text(text) == text


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_list_in_a_string_of_json_is_taken_too(depth: int) -> None:
    value = json.dumps({"tokens": ["abcd1234", "efgh5678"], "n": ["stays"]})
    for _ in range(depth):
        value = json.dumps({"inner": value})
    made = R.text(value)
    assert "abcd1234" not in made
    assert "efgh5678" not in made
    for _ in range(depth):
        made = json.loads(made)["inner"]
    assert json.loads(made)["n"] == ["stays"]


@pytest.mark.parametrize(
    "typed",
    [
        "curl -H 'Authorization: Bearer S3cr3tS3cr3t' http://x",
        'curl -H "Authorization: Basic S3cr3tS3cr3t" http://x',
        "Proxy-Authorization = Token S3cr3tS3cr3t",
        """session.headers["Authorization"] = "Bearer S3cr3tS3cr3t\"""",
        "curl -s -u ann:S3cr3tS3cr3t http://x",
        "curl -uann:S3cr3tS3cr3t http://x",
        "curl http://x --user 'ann:S3cr3tS3cr3t'",
        "curl --proxy-user=ann:S3cr3tS3cr3t http://x",
        "get https://x/y?sv=1&sig=S3cr3tS3cr3t",
        "get https://x/y?a=1&X-Amz-Signature=S3cr3tS3cr3t",
        "use postgres://u:S3cr3tS3cr3t@db/x",
    ],
)
def test_a_credential_that_was_typed_into_a_command_is_replaced(typed: str) -> None:
    for text in (typed, json.dumps({"cmd": typed})):
        made = R.text(text)
        assert "S3cr3t" not in made
        token = R.token(b"S3cr3tS3cr3t").decode()
        assert made == text.replace("S3cr3tS3cr3t", token)


@pytest.mark.parametrize("text", ["curl -u ann http://x", "curl http://x:80/a", "python -u x:y", "authorization: none"])
def test_a_command_without_one_stays(text: str) -> None:
    assert R.text(text) == text
