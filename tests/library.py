"""libcellblock by ctypes: for tests of what happens to a caller that has the library inside its own process.

Such callers are processes of their own, so that whatever goes wrong stays there: `caller(code)` gives the command for
one, which can use everything below.
"""

import ctypes
import json
import os
import pathlib
import sys

AUTO, NEVER, ALWAYS = range(3)


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("argv", ctypes.POINTER(ctypes.c_char_p)),
                ("envp", ctypes.POINTER(ctypes.c_char_p)), ("directory", ctypes.c_char_p), ("collect", ctypes.c_int),
                ("stdio", ctypes.c_int * 3), ("helper", ctypes.c_int), ("helper_path", ctypes.c_char_p)]


def caller(code, *arguments):
    """The command of a process that runs this code with the library."""
    from conftest import BUILD, PROGRAM, is_sanitized, skip_because
    if is_sanitized():
        skip_because("needs a build without sanitizers: the library could not be loaded into python")
    before = (f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\nfrom library import *\n"
              f"Cell.load({str(BUILD / 'src' / 'libcellblock.so')!r}, {str(PROGRAM)!r})\n")
    return ["/usr/bin/python3", "-B", "-c", before + code, *arguments]


def _strings(words):
    return (ctypes.c_char_p * (len(words) + 1))(*(os.fsencode(word) for word in words), None)


class Cell:
    """One run: started at once, `wait()` gives (status as in a shell, the result as JSON)."""

    @classmethod
    def load(cls, library, program):
        cls.library = ctypes.CDLL(library, use_errno=True)
        cls.library.cellblock_error_message.restype = ctypes.c_char_p
        cls.program = program

    def __init__(self, *program, helper=NEVER, directory=None, policy=None):
        self.policy, self.cell, self.error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.library.cellblock_policy_new(ctypes.byref(self.policy), ctypes.byref(self.error)))
        if policy:
            text = json.dumps(policy).encode()
            self.check(self.library.cellblock_policy_add_text(self.policy, text, ctypes.c_size_t(len(text)), b"test",
                                                              ctypes.byref(self.error)))
        options = Options(size=ctypes.sizeof(Options), argv=_strings(program), collect=1, helper=helper,
                          helper_path=os.fsencode(self.program), directory=directory and os.fsencode(directory))
        self.check(self.library.cellblock_start(self.policy, ctypes.byref(options), ctypes.byref(self.cell),
                                                ctypes.byref(self.error)))

    def check(self, failed):
        if failed:
            raise RuntimeError(self.library.cellblock_error_message(self.error).decode())

    def wait(self):
        result, text = ctypes.c_void_p(), ctypes.c_char_p()
        self.check(self.library.cellblock_wait(self.cell, ctypes.byref(result), ctypes.byref(self.error)))
        status = self.library.cellblock_result_shell_status(result)
        self.check(self.library.cellblock_result_json(result, ctypes.byref(text), ctypes.byref(self.error)))
        document = json.loads(text.value)
        self.library.cellblock_result_free(result)
        self.library.cellblock_cell_free(self.cell)
        self.library.cellblock_policy_free(self.policy)
        return status, document
