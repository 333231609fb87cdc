"""What the scenarios of the conformance suite ask for, by its names, and what the walks of the clients do besides.

Here is all that answers at once; `questions` asks the client first, `changes` tells it what happens, and `tasks` go on
without their request.
"""

import asyncio
import base64
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import mcp_django as mcp

from . import changes, exposures, questions, tasks

__all__ = ["changes", "exposures", "questions", "tasks"]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
PAUSE = 0.05


@dataclass
class Weather:
    """What the structured tool answers with."""

    city: str
    degrees: float
    words: list[str]


CONTACT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


# Tools


@mcp.tool(destructive=False)
def test_simple_text(request):
    """Answers with one line of text."""
    return "This is a simple text response for testing."


@mcp.tool(destructive=False)
def test_image_content(request):
    """Answers with an image of one pixel."""
    return mcp.Image(PNG)


@mcp.tool(destructive=False)
def test_audio_content(request):
    """Answers with a sound of no length."""
    return mcp.Audio(WAV)


@mcp.tool(destructive=False)
def test_embedded_resource(request):
    """Answers with a resource and its contents."""
    return mcp.EmbeddedResource("test://embedded-resource", "This is an embedded resource content.")


@mcp.tool(destructive=False)
def test_multiple_content_types(request):
    """Answers with text, an image and a resource."""
    document = json.dumps({"test": "data", "value": 123})
    return mcp.ToolResult(
        content=[
            mcp.Text("Multiple content types test:"),
            mcp.Image(PNG),
            mcp.EmbeddedResource("test://mixed-content-resource", document, "application/json"),
        ]
    )


@mcp.tool(destructive=False)
def test_error_handling(request):
    """Fails in a way that a model may read."""
    raise mcp.ToolError("This tool intentionally returns an error for testing")


@mcp.tool(destructive=False)
async def test_tool_with_progress(request):
    """Tells of its progress three times."""
    request.mcp.progress(0, 100)
    await asyncio.sleep(PAUSE)
    request.mcp.progress(50, 100)
    await asyncio.sleep(PAUSE)
    request.mcp.progress(100, 100)
    # Some clients no longer know whose progress it is when the result comes in the same packet.
    await asyncio.sleep(5 * PAUSE)
    return "Done."


@mcp.tool(input_schema=CONTACT_SCHEMA, destructive=False)
def json_schema_2020_12_tool(request, **contact):
    """Takes what its JSON Schema of 2020-12 describes."""
    return f"Received {', '.join(sorted(contact)) or 'nothing'}."


@mcp.tool(destructive=False)
def test_x_mcp_header(request, region: Annotated[str, mcp.Header("Region")]):
    """Takes an argument that clients mirror in the header Mcp-Param-Region."""
    return f"Region: {region}"


@mcp.tool(destructive=False)
def test_structured(request, city: str) -> Weather:
    """Answers with an object."""
    return Weather(city, 21.5, ["sunny", "windy"])


@mcp.tool(destructive=False)
def test_resource_link(request):
    """Answers with the URI of a resource."""
    return mcp.ResourceLink("test://static-text", "static_text", mime_type="text/plain")


# Resources


@mcp.resource("test://static-text", mime_type="text/plain")
def static_text(request):
    """Text that never changes."""
    return "This is the content of the static text resource."


@mcp.resource("test://static-binary", mime_type="image/png")
def static_binary(request):
    """An image that never changes."""
    return PNG


@mcp.resource("test://template/{id}/data", mime_type="application/json")
def template_data(request, id):
    """The data of one id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


# Prompts


@mcp.prompt
def test_simple_prompt(request):
    """One message without arguments."""
    return "This is a simple prompt for testing."


@mcp.prompt
def test_prompt_with_arguments(request, arg1: str, arg2: str):
    """One message that repeats its arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@mcp.prompt
def test_prompt_with_embedded_resource(request, resourceUri: str):
    """A resource, and what to do with it."""
    return [
        mcp.Message("user", mcp.EmbeddedResource(resourceUri, "Embedded resource content for testing.")),
        mcp.Message("user", mcp.Text("Please process the embedded resource above.")),
    ]


@mcp.prompt
def test_prompt_with_image(request):
    """An image, and what to do with it."""
    return [mcp.Message("user", mcp.Image(PNG)), mcp.Message("user", mcp.Text("Please analyze the image above."))]


@mcp.prompt
def test_completed_prompt(request, city: Literal["Kassel", "Kiel", "Lima"]):
    """A prompt whose argument can be completed."""
    return f"Tell me of {city}."
