"""What the client's model is asked, and what it answers."""

import pytest
from mcp_types import CreateMessageRequestParams

from mcp_django import Image, Message
from mcp_django.context.sampling_and_roots import Root, Sampled, sampling_params
from tests.question_rounds import sampled

TEXT = {"type": "text", "text": "Hello"}


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ("Hello", ["user"]),
        (["Hello", "Hello"], ["user", "user"]),
        ([("assistant", "Hello"), "Hello"], ["assistant", "user"]),
        ([Message("assistant", "Hello")], ["assistant"]),
        ([{"role": "user", "content": TEXT}], ["user"]),
    ],
    ids=["text", "texts", "pairs", "message", "wire"],
)
def test_messages_are_written_in_every_way(messages, roles):
    params = sampling_params(messages, 5, "", {})
    assert [message["role"] for message in params["messages"]] == roles
    assert all(message["content"] == TEXT for message in params["messages"])
    CreateMessageRequestParams.model_validate(params)


def test_blocks_are_content_too():
    [message] = sampling_params([("user", Image(b"x"))], 5, "", {})["messages"]
    assert message["content"]["type"] == "image"


def test_an_answer_of_several_blocks_is_their_text():
    content = [TEXT, {"type": "image", "data": "", "mimeType": "image/png"}, TEXT]
    found = Sampled.read({**sampled(""), "content": content})
    assert (found.text, len(found.content)) == ("Hello\nHello", 3)
    assert Sampled.read({"role": "assistant", "content": TEXT}).model == ""


def test_roots_have_names_where_they_have_names():
    assert Root.read_all({"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]}) == [
        Root("file:///a", "A"),
        Root("file:///b"),
    ]
