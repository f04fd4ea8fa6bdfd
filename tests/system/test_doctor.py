"""cellblock doctor: a table for people, JSON for programs, and an exit status: can the default policy be enforced?"""

LAYERS = {"landlock", "seccomp"}


def test_json_and_status(cellblock):
    ran = cellblock.command("doctor", "--json")
    document = ran.json
    assert ran.stderr == b""
    assert ran.status == (0 if document["can_enforce_default"] else 1)
    assert {"tier", "can_enforce_default", "kernel", "landlock_abi", "layers"} <= set(document)
    names = [layer["name"] for layer in document["layers"]]
    assert len(names) == len(set(names)) and LAYERS <= set(names)
    for layer in document["layers"]:
        assert layer["state"] in ("yes", "partly", "no")
        assert isinstance(layer["extra"], bool) and layer["purpose"] and isinstance(layer["detail"], str)
        assert layer["state"] != "no" or layer["fix"], layer


def test_it_says_the_truth(cellblock):
    able = cellblock.command("doctor", "--json").json["can_enforce_default"]
    assert able == (cellblock.run("true").status == 0)


def test_the_table(cellblock):
    ran = cellblock.command("doctor")
    document = cellblock.command("doctor", "--json").json
    assert ran.status == (0 if document["can_enforce_default"] else 1)
    for layer in document["layers"]:
        assert layer["name"] in ran.out
        assert not layer.get("fix") or layer["fix"].splitlines()[0] in ran.out
    assert "\033" not in ran.out, "no colour where there is no terminal"


def test_it_takes_no_arguments(cellblock):
    for arguments in (["doctor", "please"], ["doctor", "--jason"]):
        assert cellblock.command(*arguments).status == 125


def test_twice_the_same(cellblock):
    first, second = (cellblock.command("doctor", "--json").json for _ in range(2))
    assert [(layer["name"], layer["state"]) for layer in first["layers"]] == \
        [(layer["name"], layer["state"]) for layer in second["layers"]]
