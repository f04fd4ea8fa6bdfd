"""The manual and the completions say what the program does: the same options, profiles and keys, no more and no fewer."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CELLBLOCK_BUILD", ROOT / "build"))
CELLBLOCK = os.environ.get("CELLBLOCK", str(BUILD / "cellblock"))

PAGES = {
    "run": ("cellblock-run.1.scd", ["run"]),
    "doctor": ("cellblock-doctor.1.scd", ["doctor"]),
    "policy": ("cellblock-policy.1.scd", ["policy"]),
}


def output(*arguments):
    return subprocess.run([CELLBLOCK, *arguments], check=True, text=True, stdout=subprocess.PIPE).stdout


def page(name):
    return (ROOT / "man" / name).read_text()


def options_of_program(*command):
    return set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", output(*command, "--help")))


def options_of_page(text):
    return set(re.findall(r"^\*--([a-z-]+)\*", text, re.MULTILINE))


def profiles():
    return {path.stem for path in (ROOT / "profiles").glob("*.jsonc")}


@pytest.mark.parametrize("command", PAGES)
def test_page_has_the_options_of_the_program(command):
    name, arguments = PAGES[command]
    assert options_of_page(page(name)) | {"help"} == options_of_program(*arguments) | {"help"}


def test_completions_have_the_options_of_run():
    options = options_of_program("run") | {"help"}
    bash = (ROOT / "completions/cellblock.bash").read_text()
    in_run = re.search(r"run\)\s+mapfile[^']*'([^']*)'", bash).group(1)
    assert set(re.findall(r"--([a-z-]+)", in_run)) == options
    zsh = (ROOT / "completions/_cellblock").read_text().split("_cellblock_policy()")[0]
    assert set(re.findall(r"--([a-z-]+)\[", zsh)) == options
    fish = (ROOT / "completions/cellblock.fish").read_text()
    assert set(re.findall(r"-n \$run -l ([a-z-]+)", fish)) | {"help"} == options


def test_profiles_are_named():
    for text in [
        page("cellblock-run.1.scd"),
        page("cellblock-policy.1.scd"),
        page("cellblock-policy.5.scd"),
    ]:
        for profile in profiles():
            assert f"*{profile}*" in text
    for name in ["cellblock.bash", "_cellblock", "cellblock.fish"]:
        listed = re.search(r"base( [a-z]+)+", (ROOT / "completions" / name).read_text()).group(0)
        assert set(listed.split()) == profiles()


def keys_of_schema(node):
    if isinstance(node, dict):
        properties = node.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for value in node.values():
            yield from keys_of_schema(value)
    elif isinstance(node, list):
        for value in node:
            yield from keys_of_schema(value)


def test_file_format_page_has_every_key():
    text = page("cellblock-policy.5.scd")
    keys = set(keys_of_schema(json.loads(output("policy", "schema"))))
    assert {"cellblock", "files", "access", "memory"} <= keys
    assert not [key for key in keys if f"*{key}*" not in text]


def fields(value):
    """The names in a result; what is inside the parts of the report is for people."""
    for key, inner in value.items():
        yield key
        if key == "report":
            yield from inner
        elif key == "denials":
            yield from (name for denial in inner for name in denial)
        elif isinstance(inner, dict):
            yield from fields(inner)


@pytest.mark.parametrize("command", [
    ["sh", "-c", "mkdir .vscode; printf '\\377'; printf '\\377' >&2"],
    ["no-such-program"],
])
def test_page_has_the_fields_of_the_result(command, workspace):
    words = set(re.findall(r"\*([a-z_0-9-]+)\*", page("cellblock-run.1.scd")))
    done = subprocess.run([CELLBLOCK, "run", "--json", "--", *command], cwd=workspace, stdout=subprocess.PIPE)
    result = json.loads(done.stdout)
    assert result["end"] in words
    assert not set(fields(result)) - words


def test_example_of_the_policy_page_is_valid(tmp_path):
    example = re.search(r"```\n(.*?)```", page("cellblock-policy.5.scd"), re.DOTALL).group(1)
    (tmp_path / "example.jsonc").write_text(example)
    subprocess.run([CELLBLOCK, "policy", "check", str(tmp_path / "example.jsonc")], check=True)


def test_example_of_the_library_page_runs(tmp_path):
    example = re.search(r"```\n(.*?)```", page("libcellblock.3.scd"), re.DOTALL).group(1)
    (tmp_path / "example.c").write_text(example.replace("\\\\", "\\"))
    library = next(BUILD.rglob("libcellblock.so"))
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "-o", tmp_path / "example", tmp_path / "example.c",
         library, f"-Wl,-rpath,{library.parent}"],
        check=True,
    )
    result = subprocess.run([tmp_path / "example"], cwd=tmp_path, text=True, stdout=subprocess.PIPE)
    assert (result.returncode, result.stdout) == (0, "42\n")
