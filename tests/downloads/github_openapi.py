"""Cuts the requests that Harken makes out of GitHub's OpenAPI document, which is too large to keep.

    npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz package/generated/api.github.com.json
    python -m tests.downloads.github_openapi package/generated/api.github.com.json

What it writes is kept in tests/services/recorded/github_openapi.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ORIGIN = "npm @octokit/openapi {version} (MIT), generated/api.github.com.json: parameters and bodies of these requests"
KEPT = Path(__file__).parents[1] / "services/recorded/github_openapi.json"
REPO = "/repos/{owner}/{repo}"
REQUESTS = [
    f"GET {REPO}",
    f"GET {REPO}/installation",
    f"GET {REPO}/collaborators/{{username}}/permission",
    f"GET {REPO}/hooks",
    f"GET {REPO}/issues",
    f"GET {REPO}/issues/{{issue_number}}",
    f"PATCH {REPO}/issues/{{issue_number}}",
    f"GET {REPO}/issues/{{issue_number}}/comments",
    f"POST {REPO}/issues/{{issue_number}}/comments",
    f"GET {REPO}/issues/{{issue_number}}/events",
    f"GET {REPO}/issues/{{issue_number}}/labels",
    f"POST {REPO}/issues/{{issue_number}}/labels",
    f"DELETE {REPO}/issues/{{issue_number}}/labels/{{name}}",
    f"PATCH {REPO}/issues/comments/{{comment_id}}",
    f"GET {REPO}/labels",
    f"POST {REPO}/labels",
    f"GET {REPO}/labels/{{name}}",
    f"GET {REPO}/milestones",
    f"GET {REPO}/pulls",
    f"POST {REPO}/pulls",
    "GET /app",
    "GET /app/hook/config",
    "POST /app/installations/{installation_id}/access_tokens",
    "GET /orgs/{org}/hooks",
    "GET /rate_limit",
    "GET /user",
    "GET /users/{username}",
]
# what a schema says to people, and what it says about answers
_LEFT_OUT = frozenset({"description", "example", "examples", "title", "externalDocs", "x-github"})


def cut(document: dict[str, Any]) -> dict[str, Any]:
    """The parameters of the query and the schema of the body of each request."""
    return {request: _request(document, request) for request in REQUESTS}


def _request(document: dict[str, Any], request: str) -> dict[str, Any]:
    method, _, path = request.partition(" ")
    operation = document["paths"][path][method.lower()]
    parameters = [_resolve(document, one) for one in operation.get("parameters", [])]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return {
        "query": {one["name"]: one["schema"] for one in parameters if one["in"] == "query"},
        "body": _resolve(document, body) if body is not None else None,
    }


def _resolve(document: dict[str, Any], part: Any) -> Any:
    """The part with references replaced by what they mean, and without words for people."""
    if isinstance(part, list):
        return [_resolve(document, one) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        found: Any = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return _resolve(document, found)
    return {
        name: {key: _resolve(document, one) for key, one in value.items()}
        if name == "properties"
        else _resolve(document, value)
        for name, value in part.items()
        if name not in _LEFT_OUT
    }


def main(path: str) -> None:
    document = json.loads(Path(path).read_text("utf-8"))
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in cut(document).items())
    origin = json.dumps(ORIGIN.format(version=document["info"]["version"]))
    KEPT.write_text(f'{{"origin": {origin},\n "requests": {{\n{lines}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
