"""Every command that the README, the policy guide and the examples of the manual show is run, and what they show as output
is compared.

How a page is read: a `jsonc` block whose first line is a comment with a file name is that file. In a `console` block a
line that begins with "$ " is a command, and the lines up to the next one are its whole output, standard error included;
"…" stands for anything. In an `sh` block every line is a command of this source tree.
"""

import re
import subprocess

import pytest

from conftest import BUILD, HOOKED, PROGRAM, ROOT, which

PAGES = ["README.md", "docs/policy.md"]
MANUAL = sorted(path.name for path in (ROOT / "man").glob("*.scd"))

# Examples of the manual that show a refusal end with the status of the refused program.
REFUSED = {
    "cellblock run -- cat /etc/shadow": 1,
    "cellblock run --scratch --hide /opt -- sh -c 'ls -la . /opt'": 2,
}

FILES = {
    "script.py": "print('script ran')\n",
    "train.py": "import pathlib, sys\nrows = pathlib.Path(sys.argv[1], 'rows.csv').read_text().splitlines()\n"
                "print(f'read {len(rows)} lines of data')\n",
    "build.js": "console.log('built')\n",
    "build.sh": "#!/bin/sh\necho built\n",
    "Makefile": "test:\n\t@echo all tests passed\n",
    "src/app.py": "print('app')\n",
    "secrets/token": "SECRET TOKEN\n",
    "policy.jsonc": '{"cellblock": 1}\n',
    "mine.jsonc": '{"cellblock": 1}\n',
    "project/cellblock.jsonc": '{"cellblock": 1, "limits": {"processes": 40}}\n',
}


@pytest.fixture
def project(workspace, home):
    """A project such as the pages speak of, and data beside it."""
    for name, text in FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (workspace / "build.sh").chmod(0o755)
    (home / "data").mkdir()
    (home / "data" / "rows.csv").write_text("1\n2\n3\n")
    return workspace


def run(command, directory, home):
    environment = {
        "PATH": f"{PROGRAM.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "LC_ALL": "C",
        "CELLBLOCK_NO_SETUP": "1",
        "BUILD": str(BUILD),
    }
    return subprocess.run(["sh", "-c", command], cwd=directory, env=environment, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def blocks(page):
    """(language, text) of every block of code of a page, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def blocks_in(page, language):
    return [text for found, text in blocks(page) if found == language]


def commands_of(console):
    """(command, output) pairs of a console block."""
    pairs = []
    for line in console.splitlines(keepends=True):
        if line.startswith("$ "):
            pairs.append([line[2:].rstrip("\n"), ""])
        else:
            pairs[-1][1] += line
    return pairs


def matches(expected, seen):
    pattern = ".*".join(re.escape(part) for part in expected.rstrip("\n").split("…"))
    return re.fullmatch(pattern, seen.rstrip("\n"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_consoles_show_what_happens(page, project, home):
    count = 0
    for language, text in blocks(page):
        if language == "jsonc":
            name = re.match(r"// (\S+\.jsonc)\n", text).group(1)
            (project / name).write_text(text)
        elif language == "console":
            for command, expected in commands_of(text):
                seen = run(command, project, home).stdout.replace(str(home), "/home/you")
                assert matches(expected, seen), f"{page}: $ {command}\n{seen}"
                count += 1
    assert count >= 5


def test_readme_start_works(home):
    """What a stranger types first, in the source tree."""
    commands = [line.split("#")[0].strip() for text in blocks_in("README.md", "sh") for line in text.splitlines()]
    assert commands == ["make demo", "make check"]
    demo = run("make demo", ROOT, home)
    assert demo.returncode == 0, demo.stdout
    assert demo.stdout.count("✓ refused") == 6
    # This test is a part of `make check`, so that can only be looked at.
    assert "tests/run" in run("make -n check", ROOT, home).stdout


def test_demo_tells_when_an_attack_gets_through(home):
    demo = run(f"CELLBLOCK={HOOKED} CELLBLOCK_TEST_OFF=environment examples/demo.sh", ROOT, home)
    assert demo.returncode == 1
    assert demo.stdout.count("✗ WORKED") == 1


def test_make_targets_in_the_pages_exist(home):
    pages = [*PAGES, "CONTRIBUTING.md", "docs/architecture.md"]
    text = "\n".join((ROOT / page).read_text() for page in pages)
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"there is no `make {target}`"
    assert run("make -n", ROOT, home).returncode == 0


def test_links_to_files_lead_somewhere():
    for page in [*PAGES, "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"]:
        path = ROOT / page
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            if not target.startswith("https://"):
                assert (path.parent / target).exists(), f"{page} links to {target}"


def test_c_example_of_the_readme_runs(tmp_path, workspace, home):
    (example,) = blocks_in("README.md", "c")
    (tmp_path / "example.c").write_text(example)
    library = BUILD / "src" / "libcellblock.so"
    subprocess.run([which("cc"), "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "-o", tmp_path / "example",
                    tmp_path / "example.c", library, f"-Wl,-rpath,{library.parent}"], check=True)
    seen = run(str(tmp_path / "example"), workspace, home)
    assert (seen.returncode, seen.stdout) == (0, "42\n")


def examples_of_manual():
    for name in MANUAL:
        section = re.search(r"^# EXAMPLES\n(.*?)(?=^# )", (ROOT / "man" / name).read_text(), re.MULTILINE | re.DOTALL)
        for command in re.findall(r"^\t(cellblock .*)$", section.group(1) if section else "", re.MULTILINE):
            yield pytest.param(command.replace("\\*", "*"), id=command)


@pytest.mark.parametrize("command", examples_of_manual())
def test_examples_of_the_manual_run(command, project, home):
    program = re.search(r" -- (\w+)", command)
    if program:
        which(program.group(1))
    seen = run(command, project, home)
    assert seen.returncode == REFUSED.get(command, 0), seen.stdout


def test_picture_is_a_true_one(home):
    """The picture in the README is what the demo shows now."""
    drawn = run(f"CELLBLOCK={PROGRAM} TERM=xterm docs/images/render.py", ROOT, home)
    assert drawn.returncode == 0, drawn.stdout
    assert drawn.stdout == (ROOT / "docs/images/refused.svg").read_text()
