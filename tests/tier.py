"""Tier landlock, for the tests: the same program with the flags that ask for it, and kernels that have less of it."""

from conftest import Cellblock, is_root

FLAGS = ["--isolation", "landlock", *(["--accept-weaker", "ids"] if is_root() else [])]


class Tier(Cellblock):
    """`abi`: as on a kernel whose Landlock has no more than that; `tmp`: where the private directory is made."""

    flags = FLAGS

    def __init__(self, workspace, home, tmp, abi=None):
        super().__init__(workspace, home)
        self.tmp = tmp
        self.abi = abi
        self.environment["TMPDIR"] = str(tmp)

    def command(self, *arguments, abi=None, env=None, off=(), **keywords):
        abi = abi or self.abi
        if abi:
            env = {**(env or {}), "CELLBLOCK_TEST_LANDLOCK_ABI": str(abi)}
            off = off or ["nothing"]        # the test build, with every layer on
        return super().command(*arguments, env=env, off=off, **keywords)

    def run(self, *program, flags=(), **keywords):
        return super().run(*program, flags=[*self.flags, *flags], **keywords)


class Namespaces(Tier):
    """The other tier, for what holds in both."""

    flags = []
