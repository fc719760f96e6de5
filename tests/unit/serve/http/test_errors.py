"""Errors of unknown paths and methods, and of queries."""

from ....helpers.serving import COMPLETIONS
from .conftest import error_of


def test_unknown_paths_and_methods_are_told_in_the_same_form(http):
    for method, path, status in (("GET", "/nothing", 404), ("GET", COMPLETIONS, 405), ("POST", "/health", 405)):
        response = http.request(method, path)
        assert response.status_code == status and path in response.json()["error"]["message"]


def test_each_number_in_a_query_is_checked(http):
    operations = [
        (method, path, parameter)
        for path, methods in http.get("/openapi.json").json()["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]
    assert operations
    for method, path, parameter in operations:
        for value in ("x", parameter["schema"]["minimum"] - 1, parameter["schema"]["maximum"] + 1):
            response = http.request(method, path, params={parameter["name"]: value})
            assert response.status_code == 400 and error_of(response)["param"] == f"query.{parameter['name']}"
